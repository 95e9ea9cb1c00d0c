"""One file a question: a pure `transform` of data frames, and what makes a job of it.

`JOBS` names them all, so that a command need not import what it does not run.
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
