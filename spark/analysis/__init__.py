"""The analyses: pure functions of data frames, one subject a module, from which jobs put their answers together."""
