"""The results of jobs: tables, charts and summaries, and how they are written and shown."""
