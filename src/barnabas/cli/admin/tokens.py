"""`barnabas tokens`: delegation tokens, with which clients log in as the owner (KIP-48)."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.common.output import ClientOptions, client_options, connected, echo_json
from barnabas.cli.common.printable import echo
from barnabas.cli.common.tables import echo_table, header_option
from barnabas.cli.common.terminal import confirm, yes_option
from barnabas.cli.common.units import duration_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.client.admin.credentials import DelegationToken

EXAMPLES = """\b
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


# An HMAC on the command line would be visible to other users.
_hmac_option = click.option(
    "--hmac-file",
    "hmac_file",
    type=click.File(),
    required=True,
    metavar="FILE",
    help="The first line is the HMAC in base64; - for standard input.",
)


@click.group(epilog=EXAMPLES)
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
    renewers: Sequence[str], owner: str | None, lifetime: int | None, options: ClientOptions
) -> None:
    """Create a token, and print its id and its HMAC, which is a password."""
    with connected(options) as client:
        token = client.admin.create_delegation_token(
            renewers, owner=owner, max_lifetime_ms=-1 if lifetime is None else lifetime
        )
    secret = base64.b64encode(token.hmac).decode()
    if options.as_json:
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
@header_option
@client_options
def list_tokens(owners: Sequence[str], options: ClientOptions) -> None:
    """List the tokens that this user may see, without their HMACs."""
    with connected(options) as client:
        found = client.admin.describe_delegation_tokens(list(owners) or None)
    found.sort(key=lambda token: (token.owner, token.issue_timestamp, token.token_id))
    if options.as_json:
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
def renew_token(hmac_file: Any, period: int | None, options: ClientOptions) -> None:
    """Set a new expiry, within the token's lifetime."""
    secret = _hmac(hmac_file)
    with connected(options) as client:
        expiry_ms = client.admin.renew_delegation_token(secret, -1 if period is None else period)
    if options.as_json:
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
def expire_token(hmac_file: Any, after: int | None, options: ClientOptions) -> None:
    """Remove a token, or let it expire soon. Asks for confirmation on a terminal."""
    secret = _hmac(hmac_file)
    confirm("Remove the token, or shorten its life? Its users can no longer log in then.")
    with connected(options) as client:
        expiry_ms = client.admin.expire_delegation_token(secret, -1 if after is None else after)
    removed = after is None
    if options.as_json:
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
