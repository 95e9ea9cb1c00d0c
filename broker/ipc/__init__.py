"""Communication between processes: what a child inherits, the channel of requests and answers, frames, peers' rings.

Run by every role. Imports `protocol`, `config`, `server_log` and `shm`; knows no topic, no log and no group.
"""
