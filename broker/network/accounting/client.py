"""A client as the request log records it.

Runs in processor processes.
"""


class Client:
    """The client of a connection from some request on; `totals` are those of the connection."""

    __slots__ = ("connection_id", "number", "place", "text", "totals")

    def __init__(self, number: int, place: int, connection_id: int, totals: list[int]) -> None:
        self.number = number
        self.place = place
        self.connection_id = connection_id
        self.totals = totals
        self.text = b""
