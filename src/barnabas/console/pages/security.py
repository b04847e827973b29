"""Log in and log out, and the page of ACLs and users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

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
from barnabas.console.access.users import Role
from barnabas.console.console import console_of
from barnabas.console.navigation import Entry
from barnabas.console.tables import Column, tabulate
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.client.admin.acls import Acl
    from barnabas.client.facade import Client

ACL_COLUMNS: tuple[Column[Acl], ...] = (
    Column("principal", "Principal", lambda each: each.principal),
    Column("permission", "Permission", lambda each: each.permission.name),
    Column("operation", "Operation", lambda each: each.operation.name, kind="text"),
    Column("type", "Resource", lambda each: each.resource_type.name, kind="text"),
    Column("name", "Name", lambda each: each.resource_name, kind="name"),
    Column("pattern", "Pattern", lambda each: each.pattern_type.name, kind="text"),
    Column("host", "Host", lambda each: each.host, kind="text"),
)


class Credential(NamedTuple):
    """A password of a user, for one mechanism of SCRAM."""

    user: str
    mechanism: str
    iterations: int


USER_COLUMNS: tuple[Column[Credential], ...] = (
    Column("user", "User", lambda each: each.user),
    Column("mechanism", "Mechanism", lambda each: each.mechanism, kind="text"),
    Column("iterations", "Iterations", lambda each: each.iterations, kind="number"),
)


async def show_security(request: Request) -> Response:
    """Show ACLs and users."""
    console = console_of(request)
    found = await console.cluster.call(_load)
    # Only administrators have buttons in the tables.
    is_administrator = console.role_of(request) >= Role.ADMIN
    more: tuple[Column[Any], ...] = (Column("change", "Change"),) if is_administrator else ()
    return console.page(
        request,
        "security.html",
        resource_types=_choices(AclResourceType),
        pattern_types=[PatternType.LITERAL.name, PatternType.PREFIXED.name],
        operations=_choices(AclOperation),
        permissions=[AclPermission.ALLOW.name, AclPermission.DENY.name],
        mechanisms=[each.name for each in ScramMechanism if each.value > 0],
        acls=tabulate(
            request, (*ACL_COLUMNS, *more), found["acls"], text=acl_text, sort="principal"
        ),
        acls_error=found["acls_error"],
        users=tabulate(
            request, (*USER_COLUMNS, *more), found["users"],
            text=lambda each: each.user, sort="user", prefix="users.",
        ),
        users_error=found["users_error"],
    )  # fmt: skip


def acl_text(acl: Acl) -> str:
    """Return the text of an entry in which a filter looks."""
    return " ".join(str(column.value(acl)) for column in ACL_COLUMNS if column.value is not None)


def _load(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = {"acls": [], "acls_error": "", "users": [], "users_error": ""}
    try:
        found["acls"] = sorted(client.admin.describe_acls(AclFilter()), key=str)
    except ClientError as error:
        found["acls_error"] = acls_problem(error)
        if error.error_code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            # Both need the same right. Apache Kafka 4.4 would not respond to the next request.
            found["users_error"] = str(error)
            return found
    try:
        found["users"] = [
            Credential(name, each.mechanism.name, each.iterations)
            for name, credentials in client.admin.describe_scram_credentials().items()
            if not isinstance(credentials, ClientError)
            for each in credentials
        ]
    except ClientError as error:
        found["users_error"] = str(error)
    return found


def acls_problem(error: ClientError) -> str:
    """Return why there are no access control entries, and what to do."""
    if error.error_code is not ErrorCode.SECURITY_DISABLED:
        return str(error)
    return (
        "The brokers let every client do everything (SECURITY_DISABLED). The config "
        "authorizer.class.name of brokers and controllers makes them check access control entries."
    )


def _choices(kinds: type[AclResourceType | AclOperation]) -> list[str]:
    return [each.name for each in kinds if each.name not in ("UNKNOWN", "ANY")]


NAVIGATION = [Entry("Security", "ACLs and users", "/security")]
ROUTES = [
    Route("/security", show_security),
]
