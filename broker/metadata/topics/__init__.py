"""Names and layouts of topics: validation only, without changes."""
