"""Names and shapes of topics: which are valid. Judges; changes nothing."""
