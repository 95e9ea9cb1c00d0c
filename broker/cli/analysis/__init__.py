"""Commands about what a broker has done or can do: its request log, reports over it, and loads."""
