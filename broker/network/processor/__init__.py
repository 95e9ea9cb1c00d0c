"""The processor process: reads requests, writes responses in order, and mutes clients that must wait."""
