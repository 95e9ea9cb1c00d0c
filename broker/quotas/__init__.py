"""Client quotas and broker limits: the measurement of clients' usage, and the resulting throttle times.

Runs in the targets, which charge clients for their requests, and in the processors, which charge them for the time that
their bytes cost. Knows nothing of sockets, rings or logs. Throttle times are written into responses in `broker.ipc`,
and channels are muted in `broker.network`.
"""
