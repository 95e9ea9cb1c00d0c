"""The metrics of processes: each is declared in a catalogue, stored in a page of its process, and readable by all."""
