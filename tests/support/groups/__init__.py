"""The kit for groups: one coordinator in this process, and members of both protocols at each distance from it.

- `coordinator`: one partition of `__consumer_offsets` with the real coordinator over a log in memory.
- `members`: members that call that coordinator: `ClassicMember`, `ConsumerMember`, and a classic group's usual steps.
- `requests`: members that send requests, to a broker that is turned by hand or to a running one.
- `libraries`: members that are consumers of client libraries.
"""
