"""Spark jobs over the request log: each answers one question about what happened to requests.

They run wherever Spark runs and never inside the broker. They read the Parquet files that the recorder wrote and know
nothing else of the broker: this package imports nothing of ours. Layers, from the bottom: `time_range`, `session`
and `storage`; `log`, the rows; `hourly`, the tables of closed hours; `analysis` and `results`; `job`, which runs one;
`jobs`, one file a question.
"""
