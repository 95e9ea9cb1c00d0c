"""The options of each command. Imported by every call, so nothing but the library of the parser is imported here."""
