"""Writes the reference of all settings: ``docs/configuration.md`` and ``ops/server.properties``.

Both are generated from the definitions that the broker itself uses, so they cannot differ from it. Runs only when the
pages are made or checked, never in the broker.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from rotunda.broker.config.broker_config import BROKER_KEYS
from rotunda.broker.config.kafka import LISTENER_ONLY, REJECTED, WITHOUT_MEANING
from rotunda.broker.config.keys import Key, render
from rotunda.broker.config.listener_overrides import OF_LISTENERS, OF_MECHANISMS
from rotunda.broker.config.topic_config import TOPIC_CONFIGS

_LINE_LENGTH = 100
#: Longer descriptions have their first sentence on the page; ops/server.properties has the whole.
_MOST_CHARACTERS = 100
#: The usual values of Kafka for "no limit".
_POWERS = {"9223372036854775807": "2^63-1", "2147483647": "2^31-1"}
_SENTENCE_END = re.compile(r"(?<=\.)\s+(?=[A-Z0-9-])")

_INTRODUCTION = """\
# Configuration

Set a property at the start, or while the broker runs:

```
rotunda start --set num.partitions=3                      # a flag of its own (--data-dir) does the same for some
ROTUNDA_NUM_PARTITIONS=3 rotunda start                    # "." is "_", "_" is "__", "-" is "___"; KAFKA_... works too
rotunda start --config server.properties                  # Kafka's format
rotunda config set log.retention.ms=3600000 --cluster     # while it runs; needs no restart
```

Precedence: flag, environment, file, default. A value set while the broker runs overrides all of them and is kept over
a restart. `rotunda check-config` validates without starting, `rotunda print-config` prints every value and its source,
`rotunda reload` reads the file again.

The broker does not start with an unknown setting, and suggests the closest name. Unknown `KAFKA_...` variables are
ignored. The full text of every setting, with its allowed values: [ops/server.properties](../ops/server.properties).

## A server.properties of Kafka

It starts this broker, with these differences:

- [Some settings have no effect](#settings-of-kafka-without-effect). The log names those that are set.
- [Some settings are rejected](#settings-of-kafka-that-are-rejected), because the broker cannot provide their effect.
- Listeners named in `controller.listener.names` are not opened.
- A listener on all interfaces that is advertised as `localhost` opens on loopback alone, unless `insecure.listen` is
  set.
- `KAFKA_ADVERTISED_LISTENERS` without `listeners` sets both, on all interfaces, as in Kafka's images.
"""

_BROKER = """\
## Broker

*live*: whether a value can change while the broker runs. *yes*: for one broker or all; *broker*: for this broker;
*listener*: as `listener.name.<name>.<setting>`; *no*: restart the broker.
"""

_TOPICS = """\
## Topics

Set them when a topic is created, or later with `rotunda topic alter` or `rotunda config set --topic`. A topic without a
value of its own has the broker setting of the second column, which also describes it.
"""

_WITHOUT_MEANING = """\
## Settings of Kafka without effect

Any value of the right type is accepted, stored and described. `*` matches the rest of a name, except for names in the
other tables.
"""

_REJECTED = """\
## Settings of Kafka that are rejected

The broker does not start with another value than Kafka's default, nor with a replication factor or
`min.insync.replicas` above 1.
"""

_SAMPLE_HEADER = """\
Every setting of the broker with its default. Generated: python ops/pages.py writes this file.
Remove the # in front of a setting to change it; start with: rotunda start --config server.properties
"""


def describe_markdown() -> str:
    """Return the text of ``docs/configuration.md``: one line a setting."""
    broker = [
        _row((f"`{key.name}`", _default(key), _live(key), _short(key)))
        for key in sorted(BROKER_KEYS.values(), key=lambda key: key.name)
    ]
    topic_keys = sorted((key for key in TOPIC_CONFIGS.values() if not key.internal), key=lambda key: key.name)
    as_of_broker = [_row((f"`{key.name}`", _default(key))) for key in topic_keys if _is_as_of_broker(key)]
    of_topics: dict[str, list[Key]] = {}
    for key in topic_keys:
        if not _is_as_of_broker(key):
            of_topics.setdefault(_short(key), []).append(key)
    topics = [
        _row((", ".join(f"`{key.name}`" for key in keys), ", ".join(map(_default, keys)), meaning))
        for meaning, keys in of_topics.items()
    ]
    return "\n".join(
        [
            _INTRODUCTION,
            _BROKER,
            *_head("setting", "default", "live", "effect"),
            *broker,
            "",
            _TOPICS,
            *_head("setting", "default and description"),
            *as_of_broker,
            "",
            *_head("setting", "default", "effect"),
            *topics,
            "",
            _WITHOUT_MEANING,
            *_without_meaning(),
            "",
            _REJECTED,
            *_rejected(),
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


def settings_table(keys: Iterable[Key]) -> list[str]:
    """Return the lines of a table of settings with their ranges, in the order of their names."""
    lines = _head("setting", "default", "allowed", "effect")
    for key in sorted(keys, key=lambda key: key.name):
        lines.append(_row((f"`{key.name}`", _default(key), key.valid_values, key.doc)))
    return lines


def _without_meaning() -> list[str]:
    rows = [
        _row((reason, ", ".join(f"`{name}*`" if name[-1] == "." else f"`{name}`" for name in sorted(names.split()))))
        for reason, names in WITHOUT_MEANING.items()
    ]
    return [*_head("why", "settings"), *rows]


def _rejected() -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for name, reason in sorted(REJECTED.items()):
        by_reason.setdefault(reason, []).append(f"`{name}`")
    rows = [_row((reason, ", ".join(names))) for reason, names in by_reason.items()]
    return [*_head("why", "settings"), *rows]


def _head(*columns: str) -> list[str]:
    return [_row(columns), _row(["---"] * len(columns))]


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(key: Key) -> str:
    text = _plain_default(key)
    named = key.unit == key.name.rpartition(".")[2]
    return f"{text} {key.unit}" if key.unit and not named and text[0] == "`" else text


def _plain_default(key: Key) -> str:
    if key.default_text:
        return key.default_text
    text = render(key.default)
    for number, power in _POWERS.items():
        text = text.replace(number, power) if text else text
    return f"`{text}`" if text else "none"


def _short(key: Key) -> str:
    """Return the description of a key, its first sentence where it is long, with the choices that it does not name."""
    first, *rest = _SENTENCE_END.split(key.doc)
    text = first if rest and len(key.doc) > _MOST_CHARACTERS else key.doc
    missing = [choice for choice in key.choices if choice not in text]
    return f"{text} One of: {', '.join(key.choices)}." if missing else text


def _is_as_of_broker(key: Key) -> bool:
    """Return whether the broker setting that a topic's setting falls back to has the same description."""
    setting = BROKER_KEYS.get((key.default_text or "").partition(" or ")[0])
    return setting is not None and setting.doc == key.doc


def _live(key: Key) -> str:
    if not key.dynamic:
        return "no"
    if key.name in LISTENER_ONLY:
        return "listener"
    where = "broker" if key.per_broker else "yes"
    return f"{where}, listener" if key.name in {*OF_LISTENERS, *OF_MECHANISMS} else where


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
