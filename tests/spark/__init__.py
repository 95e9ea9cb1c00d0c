"""The Spark jobs: each against DuckDB on the same files, and against logs with known content."""
