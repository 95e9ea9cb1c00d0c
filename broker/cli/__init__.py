"""The command `rotunda`: `main` knows every command and its options; what does the work is imported when called."""
