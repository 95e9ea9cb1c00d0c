"""Ready-made settings of clients: each library's names for the CA, a certificate, a mechanism and a user.

Text and nothing else. A password is never part of it: each snippet names its environment variable or other source.
"""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import NamedTuple

PASSWORD_VARIABLE = "KAFKA_PASSWORD"  # noqa: S105 - the name of one


class Access(NamedTuple):
    """A client's access: addresses, the CA's file, its certificate's file, and its user with a SCRAM mechanism."""

    bootstrap: str
    ca: Path
    certificate: Path | None = None
    user: str = ""
    mechanism: str = "SCRAM-SHA-512"

    @property
    def protocol(self) -> str:
        """Kafka's name of the protocol."""
        return "SASL_SSL" if self.user else "SSL"


def snippets(access: Access) -> dict[str, str]:
    """Return settings by client, each with its file name or language first."""
    return {
        "confluent-kafka": _confluent(access),
        "kafka-python": _kafka_python(access),
        "aiokafka": _aiokafka(access),
        "java": java_properties(access),
        "kcat": _kcat(access),
    }


def _librdkafka(access: Access) -> dict[str, str]:
    settings = {
        "bootstrap.servers": access.bootstrap,
        "security.protocol": access.protocol,
        "ssl.ca.location": str(access.ca),
    }
    if access.certificate:
        settings |= {"ssl.certificate.location": str(access.certificate), "ssl.key.location": str(access.certificate)}
    if access.user:
        settings |= {"sasl.mechanism": access.mechanism, "sasl.username": access.user}
    return settings


def _confluent(access: Access) -> str:
    lines = [f"    {name!r}: {value!r}," for name, value in _librdkafka(access).items()]
    if access.user:
        lines.append(f"    'sasl.password': os.environ[{PASSWORD_VARIABLE!r}],")
    return "\n".join(("import os", "import confluent_kafka", "", "config = {", *lines, "}")) + (
        "\nproducer = confluent_kafka.Producer(config)\n"
    )


def _python_arguments(access: Access) -> list[str]:
    lines = [f"    bootstrap_servers={access.bootstrap!r},", f"    security_protocol={access.protocol!r},"]
    if access.user:
        lines += [
            f"    sasl_mechanism={access.mechanism!r},",
            f"    sasl_plain_username={access.user!r},",
            f"    sasl_plain_password=os.environ[{PASSWORD_VARIABLE!r}],",
        ]
    return lines


def _kafka_python(access: Access) -> str:
    lines = [*_python_arguments(access), f"    ssl_cafile={str(access.ca)!r},"]
    if access.certificate:
        lines += [f"    ssl_certfile={str(access.certificate)!r},", f"    ssl_keyfile={str(access.certificate)!r},"]
    return "\n".join(("import os", "import kafka", "", "config = dict(", *lines, ")")) + (
        "\nproducer = kafka.KafkaProducer(**config)\n"
    )


def _aiokafka(access: Access) -> str:
    head = ["import os", "import ssl", "import aiokafka", ""]
    head.append(f"context = ssl.create_default_context(cafile={str(access.ca)!r})")
    if access.certificate:
        head.append(f"context.load_cert_chain({str(access.certificate)!r})")
    lines = [*_python_arguments(access), "    ssl_context=context,"]
    return "\n".join((*head, "config = dict(", *lines, ")")) + (
        "\nproducer = aiokafka.AIOKafkaProducer(**config)  # in a coroutine\n"
    )


def java_properties(access: Access) -> str:
    """Return a properties file for the Java client and Kafka's own tools (--command-config)."""
    lines = [
        f"bootstrap.servers={access.bootstrap}",
        f"security.protocol={access.protocol}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={_escaped(str(access.ca))}",
    ]
    if access.certificate:
        lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={_escaped(str(access.certificate))}"]
    if access.user:
        lines += [
            f"sasl.mechanism={access.mechanism}",
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{access.user}" password="PASSWORD";',
        ]
    return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")


def _kcat(access: Access) -> str:
    options = [
        f"-X {quote(f'{name}={value}')}" for name, value in _librdkafka(access).items() if name != "bootstrap.servers"
    ]
    if access.user:
        options.append(f'-X sasl.password="${PASSWORD_VARIABLE}"')
    return " \\\n  ".join((f"kcat -b {access.bootstrap}", *options, "-L")) + "\n"
