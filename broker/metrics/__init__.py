"""Metrics for readers: read from shared memory, under Prometheus' and Kafka's names, and derived figures.

Run by the status page and the command line. Imports only `shm`, so that the status page needs nothing else.
"""
