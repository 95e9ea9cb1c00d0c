"""The status page process: serves HTTP from the published shared memory of the broker."""
