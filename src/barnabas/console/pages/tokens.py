"""Delegation tokens: list, create, renew and expire them. The HMAC is shown once."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

from starlette.routing import Route

from barnabas.cli.common.units import duration_ms
from barnabas.client.errors import ClientError
from barnabas.console.access.users import Role
from barnabas.console.console import console_of
from barnabas.console.formats import moment
from barnabas.console.forms import FormError
from barnabas.console.navigation import Entry
from barnabas.console.pages.change import Done, Preview, Shown, change
from barnabas.console.tables import Column, tabulate

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.client.admin.credentials import DelegationToken
    from barnabas.client.facade import Client
    from barnabas.console.forms import Fields

_PATH = "/tokens"
_PRINCIPAL = re.compile(r"[^:\s]+:.+")
_COLUMNS: tuple[Column[DelegationToken], ...] = (
    Column("id", "Token id", lambda row: row.token_id, "mono"),
    Column("owner", "Owner", lambda row: row.owner, "name"),
    Column("requester", "Requester", lambda row: row.requester, "name"),
    Column("renewers", "Renewers", lambda row: ", ".join(row.renewers), "text"),
    Column("issued", "Issued", lambda row: row.issue_timestamp, "moment"),
    Column("expires", "Expires", lambda row: row.expiry_timestamp, "moment"),
    Column("renewable", "Renewable until", lambda row: row.max_timestamp, "moment"),
    Column("change", "Change"),
)


async def show_tokens(request: Request) -> Response:
    """Show the tokens that the console's user may see."""
    console = console_of(request)
    rows, problem = await console.cluster.call(_load)
    columns = _COLUMNS if console.role_of(request) >= Role.ADMIN else _COLUMNS[:-1]
    table = tabulate(
        request, columns, rows, text=lambda row: f"{row.token_id} {row.owner}", sort="owner"
    )
    return console.page(request, "tokens.html", table=table, problem=problem)


def _load(client: Client) -> tuple[list[DelegationToken], str]:
    try:
        return client.admin.describe_delegation_tokens(), ""
    except ClientError as error:
        return [], str(error)


def create(client: Client, form: Fields) -> Shown:
    """Create a token, and show its HMAC this one time."""
    renewers = [_principal(each) for each in form.stripped("renewers").replace(",", " ").split()]
    owner = form.stripped("owner")
    token = client.admin.create_delegation_token(
        renewers,
        owner=_principal(owner) if owner else None,
        max_lifetime_ms=_period(form, "lifetime"),
    )
    secret = base64.b64encode(token.hmac).decode()
    return Shown("token.html", {"token": token, "secret": secret})


def renew(client: Client, form: Fields) -> Done:
    """Set a new expiry within the lifetime of a token."""
    token = _token(client, form)
    expiry = client.admin.renew_delegation_token(token.hmac, _period(form, "period"))
    return Done(f"the token {token.token_id} expires at {moment(expiry)}", _PATH)


def expire(client: Client, form: Fields) -> Done:
    """Remove a token."""
    token = _token(client, form)
    client.admin.expire_delegation_token(token.hmac)
    return Done(f"removed the token {token.token_id}", _PATH)


def preview_expire(client: Client, form: Fields) -> Preview:
    """Return the token that is removed."""
    token = _token(client, form)
    columns = ("Token id", "Owner", "Expires")
    row = (token.token_id, token.owner, moment(token.expiry_timestamp))
    text = "Programs that log in with this token can no longer do so."
    return Preview("Remove this token?", "Remove it", columns, [row], text)


def _token(client: Client, form: Fields) -> DelegationToken:
    token_id = form.required("id")
    found = {each.token_id: each for each in client.admin.describe_delegation_tokens()}
    if token_id not in found:
        raise FormError(f"there is no token {token_id}, or its owner does not let it be seen")
    return found[token_id]


def _period(form: Fields, name: str) -> int:
    """Return a duration in ms; -1, which means the longest that brokers allow, if it is empty."""
    text = form.stripped(name)
    found = duration_ms(text) if text else -1
    if found is None:
        raise FormError(f"{name} {text}: write 90s, 15m, 12h or 7d")
    return found


def _principal(text: str) -> str:
    if not _PRINCIPAL.fullmatch(text):
        raise FormError(f"{text} is not a principal: write User:NAME")
    return text


NAVIGATION = [Entry("Security", "Delegation tokens", _PATH)]
ROUTES = [
    Route(_PATH, show_tokens),
    change(f"{_PATH}/create", create, role=Role.ADMIN),
    change(f"{_PATH}/renew", renew, role=Role.ADMIN),
    change(f"{_PATH}/expire", expire, preview_expire, role=Role.ADMIN),
]
