"""The options of `rotunda tls` and `rotunda doctor`."""

from __future__ import annotations

import argparse
from pathlib import Path

from broker.cli.options.common import client_options, json_option, run_dir_option
from broker.cli.options.values import seconds

_INIT_JSON = """\
Files: ca.pem goes to every client; ca.key signs and goes nowhere; server.pem and client-NAME.pem hold a private key and
its certificates. What is there is never replaced: called again, it makes what is missing, and clients' certificates.

--json prints an object: directory, files {ca, ca_key, server, client}, names [], expires (ISO 8601, of the server),
  settings {key: value} of a broker, clients {client: its settings as text}
"""

_DOCTOR_JSON = """\
OK is as it should be, WARN soon is not or is for some, FAIL keeps the client from its work and makes the exit code 1,
UNKNOWN could not be found out.

--json prints an array of objects: level (ok, warn, fail, unknown), what, text
"""


def add_tls(command: argparse.ArgumentParser) -> None:
    """Add the actions of `rotunda tls`."""
    parsers = command.add_subparsers(title="actions", required=True, metavar="ACTION", dest="action")
    text = "make a CA for development and a server's certificate, and print what broker and clients need"
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
        help="where the files go, readable by this user alone (default: ./rotunda-tls)",
    )
    action.add_argument(
        "--host",
        action="append",
        default=[],
        dest="hosts",
        metavar="NAME",
        help="a further name or address that clients use, besides localhost and this machine's; repeatable",
    )
    action.add_argument(
        "--client",
        metavar="NAME",
        help="also a client's certificate, for a broker with ssl.client.auth=required: the client is then "
        "User:CN=NAME,O=Rotunda development",
    )
    text = "print what clients need for a broker whose CA is there"
    action = parsers.add_parser("clients", help=text, description=text)
    json_option(action)
    action.add_argument(
        "--dir", type=Path, default=Path("rotunda-tls"), metavar="DIR", help="where the CA is (default: ./rotunda-tls)"
    )
    action.add_argument("--bootstrap", default="localhost:9093", metavar="HOST:PORT", help="the broker")
    action.add_argument("--user", default="", metavar="NAME", help="with SASL_SSL and SCRAM-SHA-512 as this user")
    action.add_argument("--client", metavar="NAME", help="with the client's certificate of this name")


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
        help="a client's property, such as security.protocol=SSL, before those of --command-config; repeatable. "
        "Passwords belong in the file: others see a command's arguments",
    )
    command.add_argument("--topic", metavar="NAME", help="also say what the client may do with this topic")
    command.add_argument("--group", metavar="ID", help="also say what the client may do with this group")
    command.add_argument("--timeout", type=seconds, default=5.0, metavar="SECONDS", help="for each step (default: 5)")
