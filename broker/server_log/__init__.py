"""The lines that the broker writes for its operator: format, file, rate limit, and what is said of slow turns.

Every process writes them. Imports nothing of the broker but its clock.
"""
