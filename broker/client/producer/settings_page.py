"""Generates `docs/producer-settings.md` from the producer's settings table.

Runs only when the docs are generated or checked.
"""

from __future__ import annotations

from rotunda.broker.client.producer.config import KEYS, REJECTED, WITHOUT_MEANING
from rotunda.broker.config.reference_page import settings_table

_INTRODUCTION = """\
# Settings of the producer

Names, types, defaults and ranges are those of Kafka 4.4. See [producer](producer.md) for their use.
"""

_ACCESS = """\
## TLS and SASL

`security.protocol` is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. `ssl.*` and `sasl.*` are those of the commands
(`--command-config`): Java's names and librdkafka's, stores of JKS, PKCS12 and PEM, PLAIN, SCRAM, OAUTHBEARER
with a token in a file. [Security](security.md) has examples.
"""


def describe_markdown() -> str:
    return "\n".join(
        [
            _INTRODUCTION,
            *settings_table(KEYS.values()),
            "",
            _ACCESS,
            "## Only of Java's client",
            "",
            "They have no effect; a warning is logged.",
            "",
            *(f"- `{name}`: {reason}" for name, reason in sorted(WITHOUT_MEANING.items())),
            "",
            "Rejected:",
            "",
            *(f"- `{name}`: {reason}" for name, reason in sorted(REJECTED.items())),
        ]
    )
