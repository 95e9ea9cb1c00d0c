"""Charts as the page shows them: all that is drawn stays, and nothing else does."""

import random
import re
from xml.etree import ElementTree

import pytest

from rotunda.spark.results.charts import Chart, Series, to_svg
from rotunda.web.reports.chart import MOST_BYTES, MOST_ELEMENTS, InvalidChart, sanitised
from tests.support.feeds import random_seed

HOSTILE = "\"><script>alert(1)</script>&'\u202e\x00\ud800]]>"


def document(inner: str, attributes: str = "") -> bytes:
    return f'<svg xmlns="http://www.w3.org/2000/svg" {attributes}>{inner}</svg>'.encode()


def shape(svg: str) -> list[tuple[str, dict[str, str], str | None]]:
    return [(each.tag, dict(each.attrib), each.text) for each in ElementTree.fromstring(svg).iter()]  # noqa: S314


@pytest.mark.parametrize("kind", ["lines", "bars", "shares"])
def test_every_chart_of_a_job_stays_as_it_is(kind: str):
    seed = random_seed()
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(20):
        labels = [HOSTILE * chance.randint(0, 3) + str(n) for n in range(chance.choice([0, 1, 2, 12, 100]))]
        values: list[float | None] = [0.0, None, 1e-9, 5.0, 1e18, float("nan"), float("inf"), -1.0]
        count = chance.choice([0, 1, 5, 20])
        series = [Series(f"{HOSTILE}{n}", [chance.choice(values) for _ in labels]) for n in range(count)]
        drawn = to_svg(Chart(HOSTILE, kind, labels, series, chance.choice(["µs", "B", "share", "", HOSTILE])))
        kept = sanitised(drawn.encode())
        assert shape(kept) == [
            (tag, attributes, text if tag.endswith(("}text", "}title")) else None)
            for tag, attributes, text in shape(drawn)
        ]
        assert "<script" not in drawn
        assert "nan" not in re.sub(r"<title>.*?</title>|<text.*?</text>", "", drawn, flags=re.DOTALL)


@pytest.mark.parametrize(
    "inner",
    [
        "<script>alert(1)</script>",
        "<g><script>alert(1)</script></g>",
        "<foreignObject><body xmlns='http://www.w3.org/1999/xhtml' onload='alert(1)'/></foreignObject>",
        "<a href='javascript:alert(1)'><text>alert</text></a>",
        "<image href='http://evil.example/alert'/>",
        "<use href='#alert'/>",
        "<style>@import url(http://evil.example/alert)</style>",
        "<rect onclick='alert(1)'/>",
        "<rect style='fill: url(http://evil.example/alert)'/>",
        "<rect fill='url(http://evil.example/alert)'/>",
        "<rect class='top alert'/>",
        "<rect id='alert'/>",
        "<animate attributeName='href' values='javascript:alert(1)'/>",
        "<svg><script>alert(1)</script></svg>",
        "<script xmlns='http://www.w3.org/1999/xhtml'>alert(1)</script>",
        "<rect xmlns='http://www.w3.org/1999/xhtml' class='alert'/>",
        "<text x='1' xml:base='alert' transform='alert(1)'/>",
        "<?alert alert?><!-- alert -->",
    ],
)
def test_what_is_no_drawing_is_left_out(inner: str):
    kept = sanitised(document(f"{inner}<rect x='1'/>", "onload='alert(1)' style='alert'"))
    assert "alert" not in kept
    assert "evil" not in kept
    assert '<rect x="1">' in kept


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not XML"),
        (b"<svg", "not XML"),
        (b"\x89PNG", "not XML"),
        (b"<html><body>x</body></html>", "not SVG"),
        (b"<svg><rect/></svg>", "not SVG"),
        (b'<!DOCTYPE svg [<!ENTITY a "aaaa">]>' + document("<text>&a;</text>"), "document type"),
        (document("<g>" * 100 + "</g>" * 100), "more elements"),
        (document("<g/>" * (MOST_ELEMENTS + 1)), "more elements"),
        (document(" " * MOST_BYTES), "larger"),
    ],
    ids=["nothing", "cut off", "a picture", "a page", "no namespace", "entities", "too deep", "too many", "too large"],
)
def test_what_is_no_chart_is_rejected(content: bytes, reason: str):
    with pytest.raises(InvalidChart, match=reason):
        sanitised(content)
