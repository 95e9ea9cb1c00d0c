"""Commands about a broker on this machine: they start it, find it by its run directory, and read its shared memory."""
