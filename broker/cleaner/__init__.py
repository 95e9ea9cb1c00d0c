"""The cleaner process: retention and compaction. It computes from files and shared memory; the owners commit."""
