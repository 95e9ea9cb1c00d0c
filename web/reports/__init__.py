"""The results of Spark jobs on the status page: found below the data directory, and shown only when they are safe."""
