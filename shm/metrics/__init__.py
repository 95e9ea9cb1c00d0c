"""The metrics of processes: each is declared in a catalogue, kept in a page of its process, and read by anyone."""
