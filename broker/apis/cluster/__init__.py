"""The broker itself: its APIs, its identity, its finalized features, and access to the controller."""
