"""The request log: reads finished requests from the processors' rings and writes them to Parquet files.

Runs in the recorder process; the command line reads the files. Knows names, and neither sockets nor requests nor logs.
"""
