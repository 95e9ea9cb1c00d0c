"""The metadata file, its one writer, and its readers: what is kept of the metadata, and how changes are found."""
