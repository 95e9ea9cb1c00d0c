"""The recorder: what every request did, from the rings of the processors to Parquet files that anything can read."""
