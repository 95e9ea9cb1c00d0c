"""Spark jobs over the request log: one report per job.

They run in Spark's driver and executors, never inside the broker. They read the Parquet files of the recorder and
import nothing else of Rotunda. Layers, from the bottom: `time_range`, `session` and `file_system`; `log`, the rows;
`hourly`, the tables of closed hours; `analysis` and `results`; `job`, which runs one; `jobs`, one file per report.
"""
