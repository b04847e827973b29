"""What one principal may do: the entries that are about it, and their effect on each resource."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.routing import Route

from barnabas.cli.admin.acl_resources import (
    SUPPORTED,
    above_entries,
    authorizer_settings,
    image_of,
    in_order,
    principal_of,
)
from barnabas.client.errors import ClientError
from barnabas.console.console import console_of
from barnabas.console.forms import query_fields
from barnabas.console.navigation import Entry
from barnabas.console.pages.security import ACL_COLUMNS, acl_text, acls_problem
from barnabas.console.tables import Column, tabulate
from barnabas.metadata.acl_decision import Action, canonical_address, decide
from barnabas.protocol.resources import WILDCARD, WILDCARD_PRINCIPAL, PatternType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.client.admin.acls import Acl
    from barnabas.client.facade import Client
    from barnabas.protocol.resources import AclResourceType

_PATH = "/security/rights"
# Stands for each resource that no entry names.
_ANY_OTHER = "\0"


class Right(NamedTuple):
    """The effect of all entries on the resources of one pattern."""

    kind: AclResourceType
    # A name, a prefix with "..." behind it, or "*" for all other resources.
    resource: str
    # Names of operations.
    allowed: tuple[str, ...]
    denied: tuple[str, ...]


_COLUMNS: tuple[Column[Right], ...] = (
    Column("resource", "Resource", lambda row: row.resource, "name"),
    Column("kind", "Type", lambda row: row.kind.name.lower(), "text"),
    Column("allowed", "May", lambda row: ", ".join(row.allowed), "text"),
    Column("denied", "Is denied", lambda row: ", ".join(row.denied), "text"),
)

# An entry is named by its resource here, because all of them are about one user.
_ENTRY_COLUMNS = sorted(ACL_COLUMNS, key=lambda column: column.key != "name")


async def show_rights(request: Request) -> Response:
    """Show the rights of a principal, from one address or from those that have no own entry."""
    console, query = console_of(request), query_fields(request)
    given, host = query.stripped("principal"), query.stripped("host") or WILDCARD
    principal = principal_of(given) if given else ""
    found: dict[str, Any] = {"rights": [], "entries": [], "above": None, "problem": ""}
    if principal:
        found = await console.cluster.call(lambda client: _load(client, principal, host))
    table = tabulate(
        request,
        _COLUMNS,
        found.pop("rights"),
        text=lambda row: f"{row.resource} {row.kind.name}",
        sort="kind",
    )
    entries = tabulate(
        request,
        _ENTRY_COLUMNS,
        found.pop("entries"),
        text=acl_text,
        prefix="entries.",
    )
    return console.page(
        request,
        "rights.html",
        table=table,
        entries=entries,
        principal=principal,
        host=host,
        **found,
    )


def _load(client: Client, principal: str, host: str) -> dict[str, Any]:
    found: dict[str, Any] = {"rights": [], "entries": [], "above": None, "problem": ""}
    found["above"] = above_entries(authorizer_settings(client), principal)
    try:
        acls = client.admin.describe_acls()
    except ClientError as error:
        return {**found, "problem": acls_problem(error)}
    own = [each for each in acls if each.principal in (principal, WILDCARD_PRINCIPAL)]
    return {**found, "entries": in_order(own), "rights": rights(acls, principal, host)}


def rights(acls: Sequence[Acl], principal: str, host: str) -> list[Right]:
    """Return the effect of entries for each pattern in the entries of a principal.

    Args:
        acls: All entries of the cluster.
        principal: TYPE:NAME.
        host: The address of a client; "*" for addresses that no entry names.
    """
    _, image = image_of(acls)
    patterns = {
        (each.resource_type, each.pattern_type, each.resource_name)
        for each in acls
        if each.principal in (principal, WILDCARD_PRINCIPAL)
    }
    found = []
    for kind, pattern, name in sorted(patterns):
        sample = _ANY_OTHER if name == WILDCARD and pattern is PatternType.LITERAL else name
        allowed: list[str] = []
        denied: list[str] = []
        for operation in SUPPORTED.get(kind, ()):
            action = Action(principal, canonical_address(host), operation, kind, sample)
            decision = decide(image, action)
            if decision.acl is not None:
                names = allowed if decision.acl.is_allow else denied
                names.append(operation.name.lower())
        shown = f"{name}..." if pattern is PatternType.PREFIXED else name
        found.append(Right(kind, shown, tuple(allowed), tuple(denied)))
    return found


NAVIGATION = [Entry("Security", "Rights of a user", _PATH)]
ROUTES = [Route(_PATH, show_rights)]
