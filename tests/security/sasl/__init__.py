"""Tests of SASL: the pure machines, without sockets."""
