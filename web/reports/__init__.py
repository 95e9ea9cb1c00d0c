"""The results of Spark jobs on the status page: read from below the data directory, and shown only when safe."""
