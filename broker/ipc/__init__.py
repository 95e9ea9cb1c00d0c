"""How processes reach each other: what a child inherits, the channel of requests and answers, frames, peers' rings.

Run by every role. Imports `protocol`, `config` and `shm`; knows no topic, no log and no group.
"""
