"""The broker itself: what it serves, who it is, which features are on, and how the controller is asked."""
