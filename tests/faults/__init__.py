"""Faults that tests inject into a broker."""
