"""Clients that are held back: why a channel is not read, until when, and answers that go out later."""
