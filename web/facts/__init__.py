"""The facts on the status page: readings of shared memory, and the snapshot computed from two of them."""
