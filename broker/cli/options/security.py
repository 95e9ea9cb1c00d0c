"""The options of `rotunda tls` and `rotunda doctor`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rotunda.broker.cli.options.common import client_options, json_option, run_dir_option
from rotunda.broker.cli.options.values import seconds

_INIT_JSON = """\
Files: ca.pem for every client; ca.key, the signing key, which must stay secret; server.pem and client-NAME.pem with a
private key and its certificates. Existing files are never replaced: a second call creates only missing ones.

--json prints an object: directory, files {ca, ca_key, server, client}, names [], expires (ISO 8601, of the server),
  settings {key: value} of a broker, clients {client: its settings as text}
"""

_DOCTOR_JSON = """\
OK: no problem. WARN: a problem soon, or for some clients. FAIL: the client cannot work; exit code 1. UNKNOWN: not
checked.

--json prints an array of objects: level (ok, warn, fail, unknown), what, text
"""


def add_tls(command: argparse.ArgumentParser) -> None:
    """Add the actions of `rotunda tls`."""
    parsers = command.add_subparsers(title="actions", required=True, metavar="ACTION", dest="action")
    text = "create a development CA and a server certificate, and print broker and client settings"
    action = parsers.add_parser(
        "init",
        help=text,
        description=text,
        epilog=_INIT_JSON,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    json_option(action)
    action.add_argument(
        "--dir",
        type=Path,
        default=Path("rotunda-tls"),
        metavar="DIR",
        help="directory of the files, readable only by this user (default: ./rotunda-tls)",
    )
    action.add_argument(
        "--host",
        action="append",
        default=[],
        dest="hosts",
        metavar="NAME",
        help="another host name or address of the broker, beyond localhost and this machine's; repeatable",
    )
    action.add_argument(
        "--client",
        metavar="NAME",
        help="also create a client certificate, for ssl.client.auth=required; its principal is "
        "User:CN=NAME,O=Rotunda development",
    )
    text = "print client settings for a broker with an existing CA"
    action = parsers.add_parser("clients", help=text, description=text)
    json_option(action)
    action.add_argument(
        "--dir",
        type=Path,
        default=Path("rotunda-tls"),
        metavar="DIR",
        help="directory of the CA (default: ./rotunda-tls)",
    )
    action.add_argument("--bootstrap", default="localhost:9093", metavar="HOST:PORT", help="the broker")
    action.add_argument(
        "--user", default="", metavar="NAME", help="settings for SASL_SSL with SCRAM-SHA-512 as this user"
    )
    action.add_argument("--client", metavar="NAME", help="settings with this client certificate")


def add_doctor(command: argparse.ArgumentParser) -> None:
    """Add the options of `rotunda doctor`."""
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.epilog = _DOCTOR_JSON
    run_dir_option(command)
    client_options(command)
    json_option(command)
    command.add_argument(
        "--property",
        action="append",
        default=[],
        dest="properties",
        metavar="KEY=VALUE",
        help="a client property, such as security.protocol=SSL, overriding --command-config; repeatable. "
        "Put passwords into the file: other users can see command arguments",
    )
    command.add_argument("--topic", metavar="NAME", help="also check the client's rights to this topic")
    command.add_argument("--group", metavar="ID", help="also check the client's rights to this group")
    command.add_argument(
        "--timeout", type=seconds, default=5.0, metavar="SECONDS", help="timeout of each step (default: 5)"
    )
