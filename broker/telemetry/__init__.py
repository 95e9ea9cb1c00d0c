"""Client telemetry (KIP-714): which metrics clients are asked for, and the values that they push.

Runs in handler processes; an instance of a client is known to the handler of its connection. Knows neither APIs nor
readers of the values.
"""
