"""Pictures of the status page, made from a real broker under real load."""
