"""The commands' consumer: a blocking, single-threaded fetch loop, and membership in a classic group."""
