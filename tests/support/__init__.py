"""Helpers shared by the tests: feeds, fakes, builders, and broker processes."""
