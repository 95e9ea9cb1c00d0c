"""Settings: groups of keys (`settings`), how files and listeners are read, and the page that lists them all.

Read once by the supervisor before it forks; the controller checks what is altered later. Pure but for reading a file:
imports `protocol` alone.
"""
