"""Communication between processes: the inherited context, the request channel, its frames, and the peer rings.

Run by every role. Imports `protocol`, `config`, `server_log` and `shm`; knows no topic, no log and no group.
"""
