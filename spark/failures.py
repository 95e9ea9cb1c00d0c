"""The one exception that a job raises on purpose: reported as one line, with exit code 1."""

from __future__ import annotations


class JobFailed(Exception):  # noqa: N818 - a job that fails, said in one line
    """A job failed; the text has the reason, the value seen and the remedy."""
