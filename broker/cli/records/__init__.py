"""Commands that write and read records: `rotunda produce` and `rotunda consume`, and records as text."""
