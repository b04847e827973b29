"""`barnabas users`: users that log in by SCRAM, stored in the cluster (KIP-554)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

import click

from barnabas.cli.common.output import ClientOptions, client_options, connected, echo_json, fail
from barnabas.cli.common.printable import echo
from barnabas.cli.common.tables import echo_table, header_option
from barnabas.cli.common.terminal import confirm, yes_option
from barnabas.sasl.scram_keys import ITERATIONS_DEFAULT, SCRAM_MECHANISMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.client.admin.credentials import ScramCredential
    from barnabas.client.facade import Client

EXAMPLES = """\b
Examples:
  barnabas users list
  barnabas users add reporter
  barnabas users add reporter --mechanism SCRAM-SHA-256 --password-file secret.txt
  barnabas users remove reporter

\b
The password is asked for, or read from --password-file (- for standard input). The broker gets a
salted hash of it. Users of PLAIN are in the broker's server.properties instead.
"""

_mechanism_option = click.option(
    "--mechanism",
    type=click.Choice(list(SCRAM_MECHANISMS), case_sensitive=False),
    multiple=True,
    help="May be given for each mechanism.",
)


@click.group(epilog=EXAMPLES)
def users() -> None:
    """List, add and remove users that log in by SCRAM."""


@users.command("list", epilog="\b\nExamples:\n  barnabas users list --json\n")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@header_option
@client_options
def list_users(names: Sequence[str], options: ClientOptions) -> None:
    """List users with their mechanisms, all of them or those that are named."""
    with connected(options) as client:
        found = _credentials(client, names)
    missing = [name for name in names if name not in found]
    if options.as_json:
        echo_json(
            [
                {
                    "user": name,
                    "credentials": [
                        {"mechanism": each.mechanism.sasl_name, "iterations": each.iterations}
                        for each in credentials
                    ],
                }
                for name, credentials in found.items()
            ]
        )
    else:
        rows = [
            (name, each.mechanism.sasl_name, str(each.iterations))
            for name, credentials in sorted(found.items())
            for each in credentials
        ]
        echo_table(("user", "mechanism", "iterations"), rows)
    if missing:
        fail(f"no SCRAM credentials: {', '.join(missing)}")


@users.command("add", epilog="\b\nExamples:\n  barnabas users add reporter --iterations 16384\n")
@click.argument("name")
@_mechanism_option
@click.option(
    "--password-file",
    type=click.File(),
    metavar="FILE",
    help="The first line is the password; - for standard input.",
)
@click.option(
    "--iterations",
    type=click.IntRange(4096, 16384),
    default=ITERATIONS_DEFAULT,
    show_default=True,
    help="How often the password is hashed.",
)
@client_options
def add_user(
    name: str,
    mechanism: Sequence[str],
    password_file: TextIO | None,
    iterations: int,
    options: ClientOptions,
) -> None:
    """Add a user, or change the password. Without --mechanism: for SCRAM-SHA-512."""
    from barnabas.client.admin.credentials import ScramUpsertion

    chosen = list(dict.fromkeys(mechanism)) or ["SCRAM-SHA-512"]
    password = _password(password_file)
    with connected(options) as client:
        for each in chosen:
            # A request can change one credential of a user.
            upsertion = ScramUpsertion(name, SCRAM_MECHANISMS[each], password, iterations)
            client.admin.alter_scram_credentials([upsertion])
    if options.as_json:
        echo_json({"user": name, "mechanisms": chosen})
        return
    echo(f"user {name} can log in by {', '.join(chosen)}")


@users.command("remove", epilog="\b\nExamples:\n  barnabas users remove reporter guest\n")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@_mechanism_option
@yes_option
@client_options
def remove_users(names: Sequence[str], mechanism: Sequence[str], options: ClientOptions) -> None:
    """Remove users. With --mechanism, they keep their other mechanisms.

    Asks for confirmation on a terminal.
    """
    from barnabas.client.admin.credentials import ScramDeletion

    wanted = {SCRAM_MECHANISMS[each] for each in mechanism} or set(SCRAM_MECHANISMS.values())
    removed: dict[str, list[str]] = {}
    confirm(f"Remove {', '.join(names)}? They can no longer log in.")
    with connected(options) as client:
        for name, credentials in _credentials(client, names).items():
            for each in credentials:
                if each.mechanism not in wanted:
                    continue
                deletion = ScramDeletion(name, each.mechanism)
                client.admin.alter_scram_credentials(deletions=[deletion])
                removed.setdefault(name, []).append(each.mechanism.sasl_name)
    missing = [name for name in names if name not in removed]
    if options.as_json:
        echo_json({"removed": removed, "missing": missing})
    else:
        for name, mechanisms in removed.items():
            echo(f"user {name} cannot log in by {', '.join(mechanisms)}")
    if missing:
        fail(f"no such SCRAM credentials: {', '.join(missing)}")


def _credentials(client: Client, names: Sequence[str]) -> dict[str, list[ScramCredential]]:
    """Return the credentials by user; users without any are left out."""
    # The broker refuses a name that is given twice.
    found = client.admin.describe_scram_credentials(list(dict.fromkeys(names)) or None)
    return {
        name: sorted(each, key=lambda credential: credential.mechanism.sasl_name)
        for name, each in found.items()
        if isinstance(each, list)
    }


def _password(file: TextIO | None) -> str:
    if file is not None:
        line = file.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        line = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        raise click.UsageError("no terminal to ask for the password: give --password-file")
    if not line:
        raise click.UsageError("the password is empty")
    return line
