"""Throttling of clients: mute causes of a channel, throttle times, and delayed responses."""
