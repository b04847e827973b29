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
from barnabas.console.forms import query_fields
from barnabas.console.navigation import Entry
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


NAVIGATION = [Entry("Security", "ACLs and users", "/security")]
ROUTES = [
    Route("/security", show_security),
]
