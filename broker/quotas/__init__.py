"""What clients may use of the broker, and how long whoever has used more is throttled.

Runs in the targets, which charge clients for what they answer, and in the processors, which charge them for the time
that their bytes take. Knows nothing of sockets, rings or logs; how a throttle time is given to a client is said where
answers are written (`broker.ipc`), and how its channel is muted in `broker.network`.
"""
