"""The analyses: pure functions of data frames, one subject per module. Jobs combine them into results."""
