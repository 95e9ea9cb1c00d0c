"""The campaign's own parts, and a short campaign against a real broker."""
