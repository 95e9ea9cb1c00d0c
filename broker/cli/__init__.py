"""The command `rotunda`: a module for each command, imported when that command is called."""
