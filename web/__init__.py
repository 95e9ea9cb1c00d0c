"""The status page: what shared memory says, for people in a browser and for Prometheus. It only reads."""
