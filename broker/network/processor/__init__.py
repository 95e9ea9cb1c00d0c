"""The processors' processes: frames in, answers out, in order, with the mutes that hold a client back."""
