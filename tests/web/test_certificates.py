"""A certificate that ends soon is named."""

from types import SimpleNamespace
from typing import Any

import pytest

from rotunda.web.facts.certificates import certificate_remarks

DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000


def pages(*ends_ms: int) -> Any:
    return {
        ("processor", index): SimpleNamespace(values={("certificate_not_after_ms", "1"): end_ms})
        for index, end_ms in enumerate(ends_ms)
    } | {("acceptor", 0): SimpleNamespace(values={})}


@pytest.mark.parametrize(
    ("ends_ms", "says"),
    [
        ((0, 0), []),
        ((NOW_MS + 31 * DAY_MS,), []),
        ((0, NOW_MS + 60 * DAY_MS, NOW_MS + 29 * DAY_MS), ["listener SSL ends on 2027-02-13: replace it"]),
        ((NOW_MS - DAY_MS,), ["listener SSL has ended on 2027-01-14: replace it"]),
    ],
)
def test_a_certificate_that_ends_soon_is_named(ends_ms: tuple[int, ...], says: list[str]) -> None:
    remarks = certificate_remarks(pages(*ends_ms), ["PLAINTEXT", "SSL"], NOW_MS)
    assert len(remarks) == len(says)
    assert all(text in remark for text, remark in zip(says, remarks, strict=True))
