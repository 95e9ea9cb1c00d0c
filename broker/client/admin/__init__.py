"""The commands' own requests, over one blocking client."""
