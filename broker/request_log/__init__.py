"""The recorder: what every request did, from the rings of the processors to Parquet files that anything can read.

Run by the recorder; the command line reads the files. Knows names, and neither sockets nor requests nor logs.
"""
