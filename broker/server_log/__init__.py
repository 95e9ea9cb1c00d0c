"""The lines that the broker writes for its operator: format, file, rate limit, and the lines on slow turns.

Every process writes them. Imports nothing of the broker but its clock.
"""
