"""The one failure that a job raises on purpose: the person who started it reads one line and the exit code is 1."""

from __future__ import annotations


class JobFailed(Exception):  # noqa: N818 - a job that fails, said in one line
    """A job cannot answer its question; the text says what was wrong, what was seen and what to do."""
