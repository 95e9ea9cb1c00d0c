"""Settings: groups of keys (`settings`), parsing of files and listeners, and the reference page of all settings.

Read once by the supervisor before it forks; the controller validates later changes. Pure but for reading a file:
imports only `protocol`.
"""
