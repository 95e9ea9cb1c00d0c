"""Topics, configurations, quotas, features and ids: the controller, which is the only writer, and the readers' cache.

The controller runs in the last target; every process that uses topics holds a `MetadataCache`. Imports `config`,
`protocol` and, to rebuild a lost store, the files of `log`.
"""
