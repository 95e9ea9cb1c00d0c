"""The receiver of client metrics."""
