"""The metadata file, its one writer, and its readers: the stored metadata, and detection of changes."""
