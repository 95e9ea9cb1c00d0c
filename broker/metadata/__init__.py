"""Topics, configurations, quotas, features and ids: the controller, their one writer, and the copy that others read.

The controller runs in the last target; every process that knows topics holds a `MetadataCache`. Imports `config`,
`protocol` and, to rebuild a lost store, the files of `log`.
"""
