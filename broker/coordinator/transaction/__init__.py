"""Transactional ids: their state, their records, and the markers that end a transaction in each partition."""
