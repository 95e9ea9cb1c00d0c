"""Records of topics as data frames, read from the broker's segment files, and their exports.

The only room of the jobs that knows the broker's file formats: it reads them with the broker's own readers.
"""
