"""Unmodified clients in several languages against a real broker: the quick part of ops/compat."""
