"""Writes the reference of all settings: ``docs/configuration.md`` and ``ops/server.properties``.

Both come from the definitions that the broker itself uses, so they cannot differ from it. Runs only when
the pages are made or checked, never in the broker.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from broker.config.broker_config import BROKER_KEYS
from broker.config.kafka import LISTENER_ONLY, OPEN, REFUSED, WITHOUT_MEANING, kafka_settings, without_meaning
from broker.config.keys import Key, render
from broker.config.listener_overrides import OF_LISTENERS, OF_MECHANISMS
from broker.config.topic_config import TOPIC_CONFIGS

_LINE_LENGTH = 100

_INTRODUCTION = """\
# Configuration

This page is generated from the modules of `broker/config`; `python ops/pages.py` writes it.

A setting has the name that it has in Kafka, wherever Kafka has it. Its value comes from the first of these
that gives one:

1. a flag of `rotunda start`: `--set num.partitions=3`, or a flag of its own such as `--data-dir`;
2. the environment: `ROTUNDA_NUM_PARTITIONS=3`, or `KAFKA_NUM_PARTITIONS=3` as in Kafka's container images.
   `_` stands for a dot, `__` for an underscore, `___` for a hyphen;
3. the file named by `--config`, in the format of Kafka's `server.properties`
   (`ops/server.properties` lists every setting);
4. the default.

A name that is no setting stops the start, with the closest one that is; only a variable that begins with
`KAFKA_` is left alone, since it may be meant for another program. `rotunda check-config` checks without starting,
`rotunda print-config` shows every value and where it came from.

A `server.properties` of Kafka 4 starts this broker. Of the settings that Kafka has and this broker has not some are
[accepted](#settings-of-kafka-without-meaning-here), and one line of the log names them; others ask for what would
silently not be done and are [refused](#settings-of-kafka-that-are-refused). Two things are read this broker's way,
which the log says as well: listeners named in `controller.listener.names` are not opened, and without `insecure.listen`
a listener on all interfaces that is advertised as `localhost` is opened on the loopback address alone. As in Kafka's
images, `KAFKA_ADVERTISED_LISTENERS` without any `listeners` stands for these on all interfaces.

Settings whose column *dynamic* is not *no* can be changed while the broker runs, by
[`rotunda config set`](command-line.md#settings-of-a-running-broker), `kafka-configs` or any other admin client: for
all brokers (*cluster*), for this one (*broker*), or for one of its listeners, with `listener.name.<name>.` in front of
its name (*listener*). A setting of the file that can be changed so is also put in force by `rotunda reload`; the log
names those that take a restart.
"""

_TOPICS = """\
## Topics

Given when a topic is created or changed. A topic without a value of its own has that of the broker setting
named under *default*.
"""

_WITHOUT_MEANING = """\
## Settings of Kafka without meaning here

They may have any value of their type, are described as they were set, and change nothing. Those that Kafka changes
while it runs can be changed here as well.
"""

_REFUSED = """\
## Settings of Kafka that are refused

Any value but Kafka's default stops the start, with the reason. So does one above 1 for the number of replicas of a
topic, or for `min.insync.replicas`, since there is one broker.
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
            *settings_table(BROKER_KEYS.values(), with_dynamic=True),
            "",
            _TOPICS,
            *settings_table(shown, with_dynamic=False),
            "",
            _WITHOUT_MEANING,
            *_without_meaning(),
            "",
            _REFUSED,
            *_refused(),
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


def settings_table(keys: Iterable[Key], *, with_dynamic: bool) -> list[str]:
    """Return the lines of a table of settings, in the order of their names."""
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


def _without_meaning() -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for name in kafka_settings():
        reason = None if name in BROKER_KEYS or name in REFUSED else without_meaning(name)
        if reason:
            by_reason.setdefault(reason, []).append(f"`{name}`")
    for reason, names in WITHOUT_MEANING.items():
        others = [name for name in names.split() if name in OPEN or (name not in kafka_settings() and name[-1] != ".")]
        by_reason.setdefault(reason, []).extend(f"`{name}*`" if name in OPEN else f"`{name}`" for name in others)
    rows = [_row((reason, ", ".join(names))) for reason, names in by_reason.items()]
    return [_row(("why", "settings")), _row(["---"] * 2), *rows]


def _refused() -> list[str]:
    rows = [_row((f"`{name}`", reason)) for name, reason in sorted(REFUSED.items())]
    return [_row(("setting", "why")), _row(["---"] * 2), *rows]


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(key: Key) -> str:
    if key.default_text:
        return key.default_text
    text = render(key.default)
    return f"`{text}`" if text else "none"


def _dynamic(key: Key) -> str:
    if not key.dynamic:
        return "no"
    if key.name in LISTENER_ONLY:
        return "listener"
    where = "broker" if key.per_broker else "cluster, broker"
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
