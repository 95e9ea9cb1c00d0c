"""Metrics as readers see them: read off shared memory, under Prometheus' and Kafka's names, and what follows.

Run by the status page and the command line. Imports `shm` alone, so that the status page needs nothing else.
"""
