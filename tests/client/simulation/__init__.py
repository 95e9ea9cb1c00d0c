"""The producer's parts on a simulated clock, network and cluster, in one thread and from a seed."""
