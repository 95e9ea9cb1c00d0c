"""The command `rotunda`: `main` knows every command and its options; a command's module is imported when called."""
