"""A member of a share group on a connection to a broker turned by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.share_consumer import Got, got_in
from tests.support.stepped_broker import Client, Sent, SteppedBroker

GROUP = "share"


class SteppedShareConsumer:
    """One member; its requests name all partitions, and their acknowledgements are of the first one."""

    def __init__(
        self, broker: SteppedBroker, topic_id: bytes, member: str, partitions: Sequence[int] = (0,), group: str = GROUP
    ) -> None:
        self.partitions, self.epoch, self.member, self.group = partitions, 0, member, group
        self.client: Client = broker.client()
        self._broker, self._topic_id = broker, topic_id

    def send(self, batches: Sequence[dict[str, Any]] = (), **fields: Any) -> Sent:
        """Send a ShareFetch in the next epoch, and return it without a wait for its response."""
        return self._send(ApiKey.SHARE_FETCH, batches, **{"max_bytes": 1 << 20, "max_records": 500, **fields})

    def send_acknowledgement(self, batches: Sequence[dict[str, Any]], **fields: Any) -> Sent:
        """Send a ShareAcknowledge in the next epoch."""
        return self._send(ApiKey.SHARE_ACKNOWLEDGE, batches, **fields)

    def fetch(self, batches: Sequence[dict[str, Any]] = (), **fields: Any) -> dict[int, Got]:
        """Fetch in the next epoch and return the partitions of the response."""
        sent = self.send(batches, **fields)
        self._broker.settle()
        return got_in(response_to(sent))

    def acknowledge(self, first: int, last: int, kind: int, **fields: Any) -> int:
        """Acknowledge a range of the first partition; return its error code."""
        sent = self.send_acknowledgement([acknowledgement(first, last, kind)], **fields)
        self._broker.settle()
        return acknowledged(sent)

    def _send(self, key: ApiKey, batches: Sequence[dict[str, Any]], **fields: Any) -> Sent:
        first, *others = self.partitions
        named = [{"partition_index": first, "acknowledgement_batches": list(batches)}]
        if key is ApiKey.SHARE_FETCH:
            named += [{"partition_index": each, "acknowledgement_batches": []} for each in others]
        body = {
            "group_id": self.group,
            "member_id": self.member,
            "share_session_epoch": self.epoch,
            "topics": [{"topic_id": self._topic_id, "partitions": named}],
            **fields,
        }
        self.epoch += 1
        return self.client.send_frame(key, 2, codec.encode_request(key, 2, 0, "test", body)[4:])


def acknowledgement(first: int, last: int, *kinds: int) -> dict[str, Any]:
    """Return a batch with one type for all its offsets, or one for each."""
    return {"first_offset": first, "last_offset": last, "acknowledge_types": list(kinds)}


def response_to(sent: Sent) -> Any:
    """Return the decoded response."""
    payload = sent.answer.payload
    return codec.decode_response(sent.api_key, 2, payload, 4, len(payload))


def acknowledged(sent: Sent) -> int:
    """Return the error code of the first partition of a ShareAcknowledge."""
    response = response_to(sent)
    assert response.error_code == 0, response.error_code
    error: int = response.responses[0].partitions[0].error_code
    return error


def initialize(broker: SteppedBroker, topic_id: bytes, partitions: Sequence[int] = (0,), group: str = GROUP) -> None:
    """Give a group state for a topic, as its coordinator does."""
    for _ in range(10):
        outcomes: list[int] = []
        broker.parts(0).coordinators.share_rpc.initialize(group, topic_id, partitions, 0, 0, outcomes.append)
        broker.settle()
        if outcomes == [0]:
            return
    raise AssertionError("no state")
