"""Commands about a broker's history or capacity: its request log, reports over it, and loads."""
