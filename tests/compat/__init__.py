"""Unmodified clients in several languages against a real broker: what ops/compat runs, as far as it is quick."""
