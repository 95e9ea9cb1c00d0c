"""The cleaner process: retention and compaction. It plans with files and shared memory; the owners commit."""
