"""The fuzzer's frames: valid ones of every version that is served, and mutations that are as they claim to be."""

import random

import pytest

from ops.reliability.frames import FrameMaker, Template
from ops.reliability.mutations import Mutator
from rotunda.broker.apis.table import API_TABLE
from rotunda.broker.errors import InvalidReceive
from rotunda.broker.protocol.codec import read
from rotunda.broker.protocol.schema.definitions import request

SEED = random.randrange(2**32)
VERSIONS = [(int(api.key), v) for api in API_TABLE for v in range(api.advertised_min, api.max_version + 1)]


@pytest.fixture(scope="module")
def templates() -> list[Template]:
    print(f"seed {SEED}")
    maker = FrameMaker(random.Random(SEED))
    return [maker.template(key, version) for key, version in VERSIONS]


def test_every_version_has_a_frame_of_the_size_that_it_says(templates) -> None:
    assert len(templates) == len(VERSIONS) > 250
    for (key, version), template in zip(VERSIONS, templates, strict=True):
        assert int.from_bytes(template.frame[:4], "big") == len(template.frame) - 4
        assert int.from_bytes(template.frame[4:6], "big") == key
        assert int.from_bytes(template.frame[6:8], "big") == version
        assert template.values


def test_one_changed_value_leaves_a_request_that_can_be_read(templates) -> None:
    for (key, version), template in zip(VERSIONS, templates, strict=True):
        header = 14 + len("fuzz-0")
        for place, bits in template.values:
            changed = bytearray(template.frame)
            changed[place] ^= bits
            assert can_be_read(key, version, changed, (header, header + 1, header + 2)), (key, version, place, bits)


def can_be_read(key: int, version: int, frame: bytearray, begins: tuple[int, ...]) -> bool:
    """Return whether a body can be read from one of these places: headers differ in length."""
    for begin in begins:
        try:
            message = request(key)
            read(message.name, max(version, message.versions.lowest), frame, begin, len(frame))
        except InvalidReceive:
            continue
        return True
    return False


def test_mutations_differ_from_their_frame_and_seldom_lie_about_their_size(templates) -> None:
    mutator = Mutator(random.Random(SEED), templates)
    mutated = [(template.frame, mutator.mutated(template)) for template in templates for _ in range(40)]
    same = sum(before == after for before, after in mutated)
    lies = sum(int.from_bytes(after[:4], "big") != len(after) - 4 for _, after in mutated)
    assert same < len(mutated) / 10
    assert lies < len(mutated) / 100


def test_the_same_seed_makes_the_same_frames(templates) -> None:
    again = FrameMaker(random.Random(SEED))
    first = [again.template(key, version) for key, version in VERSIONS[:50]]
    # Batches carry the time of day.
    assert [len(each.frame) for each in first] == [len(each.frame) for each in templates[:50]]
