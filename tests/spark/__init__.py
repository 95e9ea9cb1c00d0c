"""The Spark jobs: each against DuckDB on the same files, and against logs whose truth is known."""
