"""The options of each command. Imported by every call, so nothing but argparse is imported here."""
