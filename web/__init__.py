"""The status page: shared memory, shown to people in a browser and to Prometheus. It only reads."""
