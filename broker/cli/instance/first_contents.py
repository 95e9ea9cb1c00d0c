"""Topics and users that `rotunda start` creates: `--topic`, and the lines of a `--create` file.

They are created in the broker's first process before any other runs. Existing ones are unchanged, so that every start
may have the same options.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from rotunda.broker.cli.config import assignment
from rotunda.broker.cli.options.users import DEFAULT_ITERATIONS
from rotunda.broker.errors import ApiError, BootFailed, UsageError
from rotunda.broker.metadata.offline_topics import store_topics
from rotunda.broker.metadata.security.offline_users import store_user, stored_users
from rotunda.broker.metadata.security.scram_users import MECHANISMS
from rotunda.broker.metadata.topics.topic_validation import USE_DEFAULT, NewTopic

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig

_USAGE_EXIT_CODE = 2
_USER_WORDS = 2


class FirstContents:
    """The topics and users to create. Raises UsageError for options and lines that it cannot parse."""

    def __init__(self, parsed: argparse.Namespace) -> None:
        self._topics: dict[str, NewTopic] = {}
        self._passwords: dict[str, str] = {}
        for text in parsed.topics:
            self._add_topic([text], f"--topic {text}")
        if parsed.create is not None:
            self._read(parsed.create)

    def create(self, config: BrokerConfig) -> None:
        """Create the missing ones. Raises BootFailed."""
        try:
            if self._topics:
                store_topics(config, list(self._topics.values()))
            present = stored_users(config.data_dir)
            for name, password in self._passwords.items():
                if name not in present:
                    store_user(config.data_dir, name, password, MECHANISMS, DEFAULT_ITERATIONS)
        except ApiError as error:
            raise BootFailed(error.message or str(error), _USAGE_EXIT_CODE) from error

    def _read(self, path: Path) -> None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as failure:
            raise UsageError(f"--create {path}: {failure}") from failure
        for number, line in enumerate(lines, start=1):
            place = f"{path}, line {number}"
            try:
                kind, *words = shlex.split(line, comments=True) or [""]
            except ValueError as failure:
                raise UsageError(f"{place}: {failure}") from failure
            if kind == "topic" and words:
                self._add_topic(words, place)
            elif kind == "user" and len(words) == _USER_WORDS:
                self._passwords[words[0]] = words[1]
            elif kind:
                raise UsageError(f"{place}: expected topic NAME[:PARTITIONS] [KEY=VALUE ...], or user NAME PASSWORD")

    def _add_topic(self, words: list[str], place: str) -> None:
        name, colon, count = words[0].partition(":")
        if colon and not (count.isascii() and count.isdecimal()):
            raise UsageError(f"{place}: expected NAME[:PARTITIONS], such as orders:3")
        if name in self._topics:
            raise UsageError(f"{place}: topic {name} occurs twice")
        configs: dict[str, str | None] = dict(assignment(text, place) for text in words[1:])
        self._topics[name] = NewTopic(name, int(count) if colon else USE_DEFAULT, configs=configs)
