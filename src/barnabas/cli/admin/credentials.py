"""`barnabas users`: users that log in by SCRAM, stored in the cluster (KIP-554).

`barnabas tokens`: delegation tokens, with which clients log in as the owner (KIP-48).
"""

from __future__ import annotations

import base64
import binascii
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from barnabas.cli.common.output import EXIT_FAILED, client_options, connected, echo_json, problem
from barnabas.cli.common.printable import echo
from barnabas.cli.common.tables import echo_table
from barnabas.cli.common.terminal import confirm, yes_option
from barnabas.cli.common.units import duration_ms
from barnabas.sasl.scram_keys import ITERATIONS_DEFAULT, SCRAM_MECHANISMS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.client.admin.credentials import DelegationToken, ScramCredential
    from barnabas.client.facade import Client


USERS_EXAMPLES = """\b
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


@click.group(epilog=USERS_EXAMPLES)
def users() -> None:
    """List, add and remove users that log in by SCRAM."""


@users.command("list", epilog="\b\nExamples:\n  barnabas users list --json\n")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@client_options
def list_users(
    names: Sequence[str], bootstrap: str, properties: Sequence[str], as_json: bool
) -> None:
    """List users with their mechanisms, all of them or those that are named."""
    with connected(bootstrap, properties) as client:
        found = _credentials(client, names)
    missing = [name for name in names if name not in found]
    if as_json:
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
        problem(f"no SCRAM credentials: {', '.join(missing)}")
        sys.exit(EXIT_FAILED)


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
    bootstrap: str,
    properties: Sequence[str],
    as_json: bool,
) -> None:
    """Add a user, or change the password. Without --mechanism: for SCRAM-SHA-512."""
    from barnabas.client.admin.credentials import ScramUpsertion

    chosen = list(dict.fromkeys(mechanism)) or ["SCRAM-SHA-512"]
    password = _password(password_file)
    with connected(bootstrap, properties) as client:
        for each in chosen:
            # A request can change one credential of a user.
            upsertion = ScramUpsertion(name, SCRAM_MECHANISMS[each], password, iterations)
            client.admin.alter_scram_credentials([upsertion])
    if as_json:
        echo_json({"user": name, "mechanisms": chosen})
        return
    echo(f"user {name} can log in by {', '.join(chosen)}")


@users.command("remove", epilog="\b\nExamples:\n  barnabas users remove reporter guest\n")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@_mechanism_option
@yes_option
@client_options
def remove_users(
    names: Sequence[str],
    mechanism: Sequence[str],
    yes: bool,
    bootstrap: str,
    properties: Sequence[str],
    as_json: bool,
) -> None:
    """Remove users. With --mechanism, they keep their other mechanisms.

    Asks for confirmation on a terminal.
    """
    from barnabas.client.admin.credentials import ScramDeletion

    wanted = {SCRAM_MECHANISMS[each] for each in mechanism} or set(SCRAM_MECHANISMS.values())
    removed: dict[str, list[str]] = {}
    confirm(f"Remove {', '.join(names)}? They can no longer log in.", yes=yes)
    with connected(bootstrap, properties) as client:
        for name, credentials in _credentials(client, names).items():
            for each in credentials:
                if each.mechanism not in wanted:
                    continue
                deletion = ScramDeletion(name, each.mechanism)
                client.admin.alter_scram_credentials(deletions=[deletion])
                removed.setdefault(name, []).append(each.mechanism.sasl_name)
    missing = [name for name in names if name not in removed]
    if as_json:
        echo_json({"removed": removed, "missing": missing})
    else:
        for name, mechanisms in removed.items():
            echo(f"user {name} cannot log in by {', '.join(mechanisms)}")
    if missing:
        problem(f"no such SCRAM credentials: {', '.join(missing)}")
        sys.exit(EXIT_FAILED)


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


F = TypeVar("F", bound="Callable[..., Any]")

TOKENS_EXAMPLES = """\b
Examples:
  barnabas tokens create --renewer User:scheduler --lifetime 2d
  barnabas tokens list
  barnabas tokens renew --hmac-file token.txt --period 12h
  barnabas tokens expire --hmac-file token.txt

\b
A client logs in by SCRAM with the token id as user and the HMAC as password:
  sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
    username="ID" password="HMAC" tokenauth="true";
Only `create` prints the HMAC. Brokers need delegation.token.secret.key.
"""


def _principal(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        kind, _colon, name = value.partition(":")
        if not kind or not name:
            raise click.BadParameter(f"{value!r} is not a principal: write User:NAME")
    return value


def _principals(
    ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    for each in values:
        _principal(ctx, parameter, each)
    return values


def _duration(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    found = None if value is None else duration_ms(value)
    if value is not None and found is None:
        raise click.BadParameter(f"{value!r} is not a duration: write 90s, 15m, 12h or 7d")
    return found


def _hmac_option(command: F) -> F:
    """Add --hmac-file. An HMAC on the command line would be visible to other users."""
    return click.option(
        "--hmac-file",
        "hmac_file",
        type=click.File(),
        required=True,
        metavar="FILE",
        help="The first line is the HMAC in base64; - for standard input.",
    )(command)


@click.group(epilog=TOKENS_EXAMPLES)
def tokens() -> None:
    """Create, list, renew and expire delegation tokens."""


@tokens.command(
    "create",
    epilog="\b\nExamples:\n  barnabas tokens create --json > token.json\n"
    "  barnabas tokens create --owner User:etl --renewer User:scheduler\n",
)
@click.option(
    "--renewer",
    "renewers",
    callback=_principals,
    multiple=True,
    metavar="User:NAME",
    help="A user that may renew and expire the token, besides the owner; may be repeated.",
)
@click.option(
    "--owner",
    callback=_principal,
    metavar="User:NAME",
    help="The user as which clients log in, instead of this one. Needs CREATE_TOKENS on the user.",
)
@click.option(
    "--lifetime",
    callback=_duration,
    metavar="DURATION",
    help="The token cannot be renewed beyond it, like 12h or 7d; default: the broker's longest.",
)
@client_options
def create_token(
    renewers: Sequence[str],
    owner: str | None,
    lifetime: int | None,
    bootstrap: str,
    properties: Sequence[str],
    as_json: bool,
) -> None:
    """Create a token, and print its id and its HMAC, which is a password."""
    with connected(bootstrap, properties) as client:
        token = client.admin.create_delegation_token(
            renewers, owner=owner, max_lifetime_ms=-1 if lifetime is None else lifetime
        )
    secret = base64.b64encode(token.hmac).decode()
    if as_json:
        echo_json({**_shown(token), "hmac": secret})
        return
    echo(f"token id:  {token.token_id}")
    echo(f"hmac:      {secret}")
    echo(f"owner:     {token.owner}")
    echo(f"expires:   {_time(token.expiry_timestamp)}")
    echo(f"renewable: until {_time(token.max_timestamp)}")


@tokens.command(
    "list",
    epilog="\b\nExamples:\n  barnabas tokens list --json\n"
    "  barnabas tokens list --owner User:etl\n",
)
@click.option(
    "--owner",
    "owners",
    callback=_principals,
    multiple=True,
    metavar="User:NAME",
    help="Only tokens of this owner, requester or renewer; may be repeated.",
)
@client_options
def list_tokens(
    owners: Sequence[str], bootstrap: str, properties: Sequence[str], as_json: bool
) -> None:
    """List the tokens that this user may see, without their HMACs."""
    with connected(bootstrap, properties) as client:
        found = client.admin.describe_delegation_tokens(list(owners) or None)
    found.sort(key=lambda token: (token.owner, token.issue_timestamp, token.token_id))
    if as_json:
        echo_json([_shown(token) for token in found])
        return
    rows = [
        (
            token.token_id,
            token.owner,
            token.requester,
            ", ".join(token.renewers),
            _time(token.expiry_timestamp),
            _time(token.max_timestamp),
        )
        for token in found
    ]
    echo_table(("id", "owner", "requester", "renewers", "expires", "renewable until"), rows)


@tokens.command(
    "renew",
    epilog="\b\nExamples:\n  barnabas tokens renew --hmac-file token.txt\n"
    "  barnabas tokens renew --hmac-file - --period 12h < token.txt\n",
)
@_hmac_option
@click.option(
    "--period",
    callback=_duration,
    metavar="DURATION",
    help="From now until the new expiry, like 12h; default: the broker's longest.",
)
@client_options
def renew_token(
    hmac_file: Any,
    period: int | None,
    bootstrap: str,
    properties: Sequence[str],
    as_json: bool,
) -> None:
    """Set a new expiry, within the token's lifetime."""
    secret = _hmac(hmac_file)
    with connected(bootstrap, properties) as client:
        expiry_ms = client.admin.renew_delegation_token(secret, -1 if period is None else period)
    if as_json:
        echo_json({"expiry_timestamp": expiry_ms})
    else:
        echo(f"the token expires at {_time(expiry_ms)}")


@tokens.command(
    "expire",
    epilog="\b\nExamples:\n  barnabas tokens expire --hmac-file token.txt\n"
    "  barnabas tokens expire --hmac-file token.txt --after 10m\n",
)
@_hmac_option
@click.option(
    "--after",
    callback=_duration,
    metavar="DURATION",
    help="Expire after this time instead of now, like 10m.",
)
@yes_option
@client_options
def expire_token(
    hmac_file: Any,
    after: int | None,
    yes: bool,
    bootstrap: str,
    properties: Sequence[str],
    as_json: bool,
) -> None:
    """Remove a token, or let it expire soon. Asks for confirmation on a terminal."""
    secret = _hmac(hmac_file)
    confirm("Remove the token, or shorten its life? Its users can no longer log in then.", yes=yes)
    with connected(bootstrap, properties) as client:
        expiry_ms = client.admin.expire_delegation_token(secret, -1 if after is None else after)
    removed = after is None
    if as_json:
        echo_json({"removed": removed, "expiry_timestamp": None if removed else expiry_ms})
    else:
        echo("the token is removed" if removed else f"the token expires at {_time(expiry_ms)}")


def _hmac(file: Any) -> bytes:
    """Return the HMAC in a file."""
    try:
        secret = base64.b64decode(file.readline().strip(), validate=True)
    except (binascii.Error, ValueError):
        raise click.UsageError("the first line of --hmac-file is not base64") from None
    if not secret:
        raise click.UsageError("the first line of --hmac-file is empty")
    return secret


def _shown(token: DelegationToken) -> dict[str, object]:
    """Return the public fields of a token: all but the HMAC."""
    return {
        "token_id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issue_timestamp": token.issue_timestamp,
        "expiry_timestamp": token.expiry_timestamp,
        "max_timestamp": token.max_timestamp,
    }


def _time(time_ms: int) -> str:
    """Return a time as ISO 8601 in UTC; the number if no calendar has the time."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return str(time_ms)
