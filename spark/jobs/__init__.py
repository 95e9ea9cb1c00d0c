"""One file per report: a pure `transform` of data frames, and the job around it.

`JOBS` lists them all, so that a command need not import the jobs that it does not run.
"""

#: Module by name of the job.
JOBS = {
    name: f"rotunda.spark.jobs.{name}"
    for name in (
        "rollup",
        "capacity",
        "compact",
        "clients",
        "diagnose",
        "errors",
        "groups",
        "latency",
        "quotas",
        "replay",
        "slo",
        "traffic",
    )
}
