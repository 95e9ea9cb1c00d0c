"""Tests of the installed package."""
