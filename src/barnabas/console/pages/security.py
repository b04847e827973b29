"""Log in and log out, and the page of ACLs and users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from barnabas.client.admin.acls import (
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from barnabas.client.admin.credentials import ScramMechanism
from barnabas.client.errors import ClientError
from barnabas.console.console import console_of
from barnabas.console.forms import form_fields, query_fields
from barnabas.console.navigation import Entry
from barnabas.console.pages.change import check_token
from barnabas.console.rendering import paged

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.client.facade import Client

_USERS_MAX = 500


async def show_security(request: Request) -> Response:
    """Show ACLs and users."""
    console, query = console_of(request), query_fields(request)
    principal = query.stripped("principal") or None
    found = await console.cluster.call(lambda client: _load(client, principal))
    return console.page(
        request,
        "security.html",
        principal=principal or "",
        resource_types=_choices(AclResourceType),
        pattern_types=[PatternType.LITERAL.name, PatternType.PREFIXED.name],
        operations=_choices(AclOperation),
        permissions=[AclPermission.ALLOW.name, AclPermission.DENY.name],
        mechanisms=[each.name for each in ScramMechanism if each.value > 0],
        **{**found, "acls": paged(found["acls"], query.number("page", 1))},
    )


def _load(client: Client, principal: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {"acls": [], "acls_error": "", "users": [], "users_error": ""}
    try:
        acls = client.admin.describe_acls(AclFilter(principal=principal))
        found["acls"] = sorted(acls, key=str)
    except ClientError as error:
        found["acls_error"] = str(error)
    try:
        users = client.admin.describe_scram_credentials()
        found["users"] = sorted(
            (name, each)
            for name, credentials in users.items()
            if not isinstance(credentials, ClientError)
            for each in [sorted((c.mechanism.name, c.iterations) for c in credentials)]
        )[:_USERS_MAX]
    except ClientError as error:
        found["users_error"] = str(error)
    return found


def _choices(kinds: type[AclResourceType | AclOperation]) -> list[str]:
    return [each.name for each in kinds if each.name not in ("UNKNOWN", "ANY")]


async def show_login(request: Request) -> Response:
    """Show the form for the password."""
    console = console_of(request)
    target = query_fields(request).text("next")
    return console.page(request, "login.html", next=_local(target), problem="")


async def log_in(request: Request) -> Response:
    """Check the password, and begin a session."""
    console, form = console_of(request), await form_fields(request)
    target = _local(form.text("next"))
    sessions = console.sessions
    if not console.settings.has_login:
        return console.page(request, "login.html", 403, next=target, problem="there is no log-in")
    if sessions.is_blocked:
        text = "too many wrong passwords: wait a minute"
        return console.page(request, "login.html", 429, next=target, problem=text)
    session_id = sessions.log_in(form.text("password"))
    if session_id is None:
        text = "the password is wrong"
        return console.page(request, "login.html", 403, next=target, problem=text)
    response = console.redirect(target)
    response.set_cookie(sessions.cookie, session_id, httponly=True, samesite="strict")
    return response


async def log_out(request: Request) -> Response:
    """End the session."""
    console = console_of(request)
    check_token(console.session_of(request), await form_fields(request))
    console.sessions.log_out(request.cookies.get(console.sessions.cookie))
    response = console.redirect("/")
    response.delete_cookie(console.sessions.cookie, httponly=True, samesite="strict")
    return response


def _local(target: str) -> str:
    """Return a path of this console; "/" for anything that could lead elsewhere."""
    is_local = target.startswith("/") and not target.startswith(("//", "/\\"))
    return target if is_local and target.isprintable() and "\\" not in target else "/"


NAVIGATION = [Entry("Security", "ACLs and users", "/security")]
ROUTES = [
    Route("/security", show_security),
    Route("/login", show_login),
    Route("/login", log_in, methods=["POST"]),
    Route("/logout", log_out, methods=["POST"]),
]
