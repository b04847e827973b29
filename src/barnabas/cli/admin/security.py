"""`barnabas security init`: certificates, a user and files for a broker with TLS, SASL and ACLs."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.output import echo_json, fail, json_option
from barnabas.cli.common.printable import echo

if TYPE_CHECKING:
    from barnabas.cli.admin.security_files import SecurityLayout

EXAMPLES = """\b
Examples:
  barnabas security init secured --host localhost
  barnabas security init secured --host kafka.example --host 10.0.0.7 --port 9093
  barnabas start secured/server.properties
  barnabas topics list --command-config secured/client-barnabas.properties
"""
INIT_EXAMPLES = """\b
Examples:
  barnabas security init secured --host localhost
  barnabas security init secured --host kafka.example --host 10.0.0.7 --user operator --days 30

\b
The authority is for development: its key lies in the directory without a password. In production,
use the certificates of your organization, and docs/security.md; for a cluster,
docs/security-cluster.md.
"""
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:-]{0,251}[A-Za-z0-9])?|::1?")
_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PASSWORD_BYTES = 24
_BROKER = "broker-1"


@click.group(epilog=EXAMPLES)
def security() -> None:
    """Set up a broker with TLS, users and rights."""


@security.command(epilog=INIT_EXAMPLES)
@click.argument("directory", metavar="DIR")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Name or address at which clients reach the broker; may be repeated. The first one is "
    "advertised.  [default: localhost]",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65534),
    default=9093,
    show_default=True,
    help="Port for users with a password.",
)
@click.option(
    "--certificate-port",
    type=click.IntRange(1, 65535),
    help="Port for clients with a certificate.  [default: the next port]",
)
@click.option("--user", default="admin", show_default=True, help="The first user, a super user.")
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=365,
    show_default=True,
    help="How long the certificates are valid.",
)
@json_option("Print JSON, without the password.")
def init(
    directory: str,
    hosts: tuple[str, ...],
    port: int,
    certificate_port: int | None,
    user: str,
    days: int,
    as_json: bool,
) -> None:
    """Create a secured broker's certificates, first user, server.properties and clients' files.

    DIR must be empty or absent; nothing is overwritten. It gets mode 0700 and its files 0600. The
    data directory is formatted with the user, whose password is for SCRAM-SHA-512.
    """
    from barnabas.cli.admin.security_files import SecurityLayout

    hosts = tuple(dict.fromkeys(hosts)) or ("localhost",)
    for host in hosts:
        if _HOST.fullmatch(host) is None:
            raise click.UsageError(f"--host {host}: give a host name or an IP address")
    if _USER.fullmatch(user) is None or user == _BROKER:
        raise click.UsageError(
            f"--user {user}: use at most 64 letters, digits, '.', '-' and '_'; "
            f"{_BROKER} is the name of the broker"
        )
    path = str(Path(directory).resolve())
    if not path.isascii() or not path.isprintable() or set(path) & set('\\"'):
        raise click.UsageError(
            "DIR: use printable ASCII characters, without quotes and backslashes"
        )
    layout = SecurityLayout(
        directory=path,
        hosts=hosts,
        port=port,
        certificate_port=port + 1 if certificate_port is None else certificate_port,
        user=user,
        password=secrets.token_urlsafe(_PASSWORD_BYTES),
        broker=_BROKER,
    )
    try:
        _create_directory(path)
        files = _write(layout, days)
        _format(layout)
    except OSError as error:
        fail(f"{path}: {error.strerror or error}")
    if as_json:
        echo_json({"directory": path, "files": files, "user": user, "password_file": files[-1]})
        return
    _echo_next(layout, files)


def _create_directory(path: str) -> None:
    """Create the directory for this user only; an existing one must be empty.

    Raises:
        OSError: It cannot be created or read.
    """
    directory = Path(path)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise click.UsageError(f"{path} is not empty, and nothing is overwritten: name another one")
    directory.chmod(0o700)


def _write(layout: SecurityLayout, days: int) -> list[str]:
    """Write all files; return their names. The last one has the password.

    Raises:
        OSError: A file cannot be written, or exists.
    """
    from barnabas.cli.admin.security_files import (
        DevelopmentAuthority,
        client_files,
        server_properties,
    )
    from barnabas.protocol.primitives import uuid_to_string
    from barnabas.runtime.rng import SystemRng

    authority = DevelopmentAuthority("Barnabas development CA", days)
    broker = authority.issue(layout.broker, layout.hosts)
    client = authority.issue(layout.user)
    contents = {
        "ca.pem": authority.own.certificate,
        "ca.key": authority.own.key,
        "broker.pem": broker.key + broker.certificate,
        "client.crt": client.certificate,
        "client.key": client.key,
        "server.properties": server_properties(layout, uuid_to_string(SystemRng().uuid())),
        **client_files(layout),
        f"{layout.user}.password": f"{layout.password}\n",
    }
    for name, text in contents.items():
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        descriptor = os.open(f"{layout.directory}/{name}", flags, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    return list(contents)


def _format(layout: SecurityLayout) -> None:
    """Format the data directory, with the first user.

    Raises:
        OSError: A directory cannot be written.
    """
    from barnabas.runtime.clock import SystemClock
    from barnabas.runtime.disk import RealDisk
    from barnabas.runtime.rng import SystemRng
    from barnabas.server.configs.configuration import read_configuration
    from barnabas.server.startup.formatting import (
        FirstVoters,
        FormatDependencies,
        format_node,
        parse_first_user,
    )
    from barnabas.settings.properties import parse_properties

    text = RealDisk().read(f"{layout.directory}/server.properties").decode("latin-1")
    user = f"SCRAM-SHA-512=[name={layout.user},password={layout.password}]"
    format_node(
        read_configuration(parse_properties(text)),
        FirstVoters.AS_CONFIGURED,
        FormatDependencies(RealDisk(), SystemClock(), SystemRng()),
        users=[parse_first_user(user, SystemRng())],
    )


def _echo_next(layout: SecurityLayout, files: list[str]) -> None:
    at = layout.directory
    echo(f"{at} has {len(files)} files and the formatted data directory; only you may read them")
    echo(f"user {layout.user}, password {layout.password} (also in {at}/{files[-1]})")
    echo("Start the broker:")
    echo(f"  barnabas start {at}/server.properties")
    echo("Use it, as this user or with the client's certificate:")
    echo(f"  barnabas topics create first -F {at}/client-barnabas.properties")
    echo(f"  barnabas topics list -F {at}/client-certificate.properties")
    echo(f"  kcat -F {at}/client-librdkafka.properties -L")
    echo("Add a user, and give rights:")
    echo(f"  barnabas users add app -F {at}/client-barnabas.properties")
    echo(
        f"  barnabas acls add User:app --producer --topic first -F {at}/client-barnabas.properties"
    )
