"""Writes the reference of all settings: ``docs/configuration.md`` and ``ops/server.properties``.

Both come from the definitions that the broker itself uses, so they cannot differ from it. Runs only when
the pages are made or checked, never in the broker.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from broker.config.broker_config import BROKER_KEYS
from broker.config.keys import Key, render
from broker.config.topic_config import TOPIC_CONFIGS

_LINE_LENGTH = 100

_INTRODUCTION = """\
# Configuration

This page is generated from `broker/config/server.py`, `broker/config/log.py` and `broker/config/topic_config.py`;
`python ops/pages.py` writes it.

A setting has the name that it has in Kafka, wherever Kafka has it. Its value comes from the first of these
that gives one:

1. a flag of `rotunda start`: `--set num.partitions=3`, or a flag of its own such as `--data-dir`;
2. the environment: `ROTUNDA_NUM_PARTITIONS=3`, or `KAFKA_NUM_PARTITIONS=3` as in Kafka's container images.
   `_` stands for a dot, `__` for an underscore, `___` for a hyphen;
3. the file named by `--config`, in the format of Kafka's `server.properties`
   (`ops/server.properties` lists every setting);
4. the default.

A name that is no setting stops the start, with the closest one that is; only a variable that begins with
`KAFKA_` is left alone, since it may be meant for another program. A setting that Kafka has and this broker has not may
stand at Kafka's default, where it changes nothing; any other value of it is refused by name. `rotunda check-config`
checks without starting, `rotunda print-config` shows every value and where it came from.

*Dynamic* settings can be changed while the broker runs, by `kafka-configs` or any other admin client: for this
broker, or for all of them unless the table says *per broker*.
"""

_TOPICS = """\
## Topics

Given when a topic is created or changed. A topic without a value of its own has that of the broker setting
named under *default*.
"""

_SAMPLE_HEADER = """\
Every setting of the broker with its default. Generated: python ops/pages.py writes this file.
Remove the # in front of a setting to change it; start with: rotunda start --config server.properties
"""


def describe_markdown() -> str:
    """Return the text of ``docs/configuration.md``."""
    shown = [key for key in TOPIC_CONFIGS.values() if not key.internal]
    return "\n".join(
        [
            _INTRODUCTION,
            "## Broker",
            "",
            *_table(BROKER_KEYS.values(), with_dynamic=True),
            "",
            _TOPICS,
            *_table(shown, with_dynamic=False),
            "",
        ]
    )


def sample_properties() -> str:
    """Return the text of ``ops/server.properties``: every setting, commented out, at its default."""
    lines = [*_comment(_SAMPLE_HEADER.strip())]
    for key in BROKER_KEYS.values():
        lines += ["", *_comment(f"{key.doc}{_facts(key)}")]
        lines.append(f"#{key.name}={render(key.default) or ''}")
    return "\n".join(lines) + "\n"


def _table(keys: Iterable[Key], *, with_dynamic: bool) -> list[str]:
    columns = [
        "setting",
        "type",
        "default",
        "allowed",
        *(["dynamic"] if with_dynamic else []),
        "what it does",
    ]
    lines = [_row(columns), _row(["---"] * len(columns))]
    for key in sorted(keys, key=lambda key: key.name):
        kind = key.kind.name.lower()
        cells = [
            f"`{key.name}`",
            f"{kind}, {key.unit}" if key.unit else kind,
            _default(key),
            key.valid_values,
            *([_dynamic(key)] if with_dynamic else []),
            key.doc,
        ]
        lines.append(_row(cells))
    return lines


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(key: Key) -> str:
    if key.default_text:
        return key.default_text
    text = render(key.default)
    return f"`{text}`" if text else "none"


def _dynamic(key: Key) -> str:
    if not key.dynamic:
        return ""
    return "per broker" if key.per_broker else "yes"


def _facts(key: Key) -> str:
    facts = [
        f"Unit: {key.unit}." if key.unit else "",
        f"Allowed: {key.valid_values}." if key.valid_values else "",
        f"Default: {key.default_text}." if key.default_text else "",
    ]
    return "".join(f" {fact}" for fact in facts if fact)


def _comment(text: str) -> list[str]:
    paragraphs = (textwrap.wrap(line, _LINE_LENGTH - 2) for line in text.splitlines())
    return [f"# {line}" for paragraph in paragraphs for line in paragraph]
