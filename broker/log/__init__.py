"""Topic data on disk in Kafka's own format, written by the handler that owns a partition and read by any handler."""
