"""Tests of the brokers that users test with."""
