"""Room on the disk: who watches it, what is kept in reserve, and what is refused when there is none.

The watch runs in the controller, the gate in each handler.
"""
