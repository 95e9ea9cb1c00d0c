"""The facts that the status page shows: readings of shared memory, and the snapshot worked out of two of them."""
