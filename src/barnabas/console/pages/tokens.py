"""Delegation tokens: list, create, renew and expire them. The HMAC is shown once."""

from __future__ import annotations

import base64
import contextlib
import re
from typing import TYPE_CHECKING

from starlette.routing import Route

from barnabas.client.errors import ClientError
from barnabas.console.access.users import Role
from barnabas.console.console import console_of
from barnabas.console.formats import moment
from barnabas.console.forms import FormError
from barnabas.console.navigation import Entry
from barnabas.console.pages.change import Done, Preview, Shown, change
from barnabas.console.tables import Column, columns_of, tabulate
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.client.admin.credentials import DelegationToken
    from barnabas.client.facade import Client
    from barnabas.console.forms import Fields

_PATH = "/tokens"
_PRINCIPAL = re.compile(r"[^:\s]+:.+")
# What the brokers' errors mean, and what to do.
_EXPLANATIONS = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: (
        "This cluster has no delegation tokens. Set delegation.token.secret.key to the same secret "
        "on all brokers and controllers, and restart them."
    ),
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "The brokers give tokens only to clients that log in with a password or a certificate. "
        "Start the console with such a log-in, for example --profile or -F FILE."
    ),
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: (
        "The user of the console is neither the owner nor a renewer of this token. Log in as one "
        "of them, or create the token with this user among its renewers."
    ),
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "The token has expired. Create a new one.",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "The token does not exist any more. Load the page again.",
    ErrorCode.INVALID_PRINCIPAL_TYPE: (
        "Owners and renewers are users: write User:NAME, and no other type of principal."
    ),
    ErrorCode.INVALID_TIMESTAMP: (
        "The brokers do not accept this length of time. It must be longer than zero, and at most "
        "their config delegation.token.max.lifetime.ms."
    ),
}
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
        return [], _explanation(error) or str(error)


def create(client: Client, form: Fields) -> Shown:
    """Create a token, and show its HMAC this one time."""
    renewers, owners = _principals(form, "renewers"), _principals(form, "owner")
    if len(owners) > 1:
        raise FormError("a token has one owner", "owner")
    with _explained():
        token = client.admin.create_delegation_token(
            renewers,
            owner=owners[0] if owners else None,
            max_lifetime_ms=_period(form, "lifetime"),
        )
    secret = base64.b64encode(token.hmac).decode()
    return Shown("token.html", {"token": token, "secret": secret})


def renew(client: Client, form: Fields) -> Done:
    """Set a new expiry within the lifetime of a token."""
    token = _token(client, form)
    with _explained():
        expiry = client.admin.renew_delegation_token(token.hmac, _period(form, "period"))
    return Done(f"the token {token.token_id} expires at {moment(expiry)}", _PATH)


def expire(client: Client, form: Fields) -> Done:
    """Remove a token."""
    token = _token(client, form)
    with _explained():
        client.admin.expire_delegation_token(token.hmac)
    return Done(f"removed the token {token.token_id}", _PATH)


def preview_expire(client: Client, form: Fields) -> Preview:
    """Return the token that is removed."""
    token = _token(client, form)
    columns = columns_of("Token id", "Owner", ("Expires", "moment"))
    row = (token.token_id, token.owner, token.expiry_timestamp)
    text = "Programs that log in with this token can no longer do so."
    return Preview("Remove this token?", "Remove it", columns, [row], text)


def _token(client: Client, form: Fields) -> DelegationToken:
    token_id = form.required("id")
    with _explained():
        found = {each.token_id: each for each in client.admin.describe_delegation_tokens()}
    if token_id not in found:
        raise FormError(f"there is no token {token_id}, or the user of the console may not see it")
    return found[token_id]


def _period(form: Fields, name: str) -> int:
    """Return a duration in ms; -1, which means the longest that brokers allow, if it is empty."""
    return form.duration(name) if form.stripped(name) else -1


def _principals(form: Fields, name: str) -> list[str]:
    """Return the principals of a field, with spaces or commas between them."""
    found = form.stripped(name).replace(",", " ").split()
    for each in found:
        if not _PRINCIPAL.fullmatch(each):
            text = f"{form.label(name)}: {each} is not a principal; write User:NAME"
            raise FormError(text, name)
    return found


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Raise the errors of tokens in plain words."""
    try:
        yield
    except ClientError as error:
        text = _explanation(error)
        if not text:
            raise
        raise FormError(text) from error


def _explanation(error: ClientError) -> str:
    """Return what an error about tokens means and what to do; "" for another error."""
    return _EXPLANATIONS.get(error.error_code or ErrorCode.NONE, "")


NAVIGATION = [Entry("Security", "Delegation tokens", _PATH)]
ROUTES = [
    Route(_PATH, show_tokens),
    change(f"{_PATH}/create", create, role=Role.ADMIN),
    change(f"{_PATH}/renew", renew, role=Role.ADMIN),
    change(f"{_PATH}/expire", expire, preview_expire, role=Role.ADMIN),
]
