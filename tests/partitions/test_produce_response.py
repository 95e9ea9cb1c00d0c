"""The template of a response about one partition compared with the encoder."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rotunda.broker.partitions.produce_response import single_partition_response
from rotunda.broker.protocol.messages.produce import PartResponse, encode_produce_response
from tests.protocol.kio_entities import few


@pytest.mark.parametrize("version", range(3, 14))
@few
@given(
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    partition=st.integers(0, 2**31 - 1),
    name=st.text(min_size=1, max_size=249),
    base_offset=st.integers(-1, 2**63 - 1),
    error_code=st.integers(-1, 130),
)
def test_a_filled_template_equals_the_encoded_response(
    version: int, correlation_id: int, partition: int, name: str, base_offset: int, error_code: int
) -> None:
    topic_id = bytes(range(16))
    template = single_partition_response(version, name, topic_id, partition)
    part = PartResponse(name, topic_id, partition, error_code, base_offset, 5, 17)
    assert template.fill(correlation_id, error_code, base_offset, 5, 17) == encode_produce_response(
        version, correlation_id, 0, [part]
    )
