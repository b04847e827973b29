"""Options that name resources and operations, and how entries are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from barnabas.cli.common.tables import bad, echo_table, good
from barnabas.protocol.resources import (
    CLUSTER_NAME,
    LISTED_OPERATIONS,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from barnabas.client.admin.acls import Acl

F = TypeVar("F", bound="Callable[..., Any]")

OPERATIONS = [each.name.lower() for each in AclOperation if each > AclOperation.ANY]
_USER = "User:"
# Operations on each type of resource, besides "all".
_SUPPORTED: dict[AclResourceType, tuple[AclOperation, ...]] = {
    AclResourceType.TOPIC: LISTED_OPERATIONS[AclResourceType.TOPIC],
    AclResourceType.GROUP: LISTED_OPERATIONS[AclResourceType.GROUP],
    AclResourceType.CLUSTER: LISTED_OPERATIONS[AclResourceType.CLUSTER],
    AclResourceType.TRANSACTIONAL_ID: (
        AclOperation.DESCRIBE,
        AclOperation.WRITE,
        AclOperation.TWO_PHASE_COMMIT,
    ),
    AclResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}


@dataclass(frozen=True)
class Resource:
    """A resource that an option names."""

    kind: AclResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.kind.name.lower()} {self.name}"


def resource_options(command: F) -> F:
    """Add the options that name resources. The command gets `resources`."""

    def with_resources(
        *,
        topics: Sequence[str],
        groups: Sequence[str],
        transactional_ids: Sequence[str],
        users: Sequence[str],
        cluster: bool,
        **given: Any,
    ) -> Any:
        named = [
            *(Resource(AclResourceType.TOPIC, name) for name in topics),
            *(Resource(AclResourceType.GROUP, name) for name in groups),
            *(Resource(AclResourceType.TRANSACTIONAL_ID, name) for name in transactional_ids),
            *(Resource(AclResourceType.USER, name) for name in users),
        ]
        if cluster:
            named.append(Resource(AclResourceType.CLUSTER, CLUSTER_NAME))
        return command(resources=named, **given)

    made: Any = with_resources
    made.__doc__, made.__name__ = command.__doc__, command.__name__
    made.__click_params__ = getattr(command, "__click_params__", [])
    for option in reversed(_RESOURCE_OPTIONS):
        made = option(made)
    result: F = made
    return result


_RESOURCE_OPTIONS = (
    click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic; * is all."),
    click.option("--group", "groups", multiple=True, metavar="NAME", help="A group; * is all."),
    click.option(
        "--transactional-id",
        "transactional_ids",
        multiple=True,
        metavar="NAME",
        help="A transactional id; * is all.",
    ),
    click.option(
        "--user", "users", multiple=True, metavar="TYPE:NAME", help="An owner of tokens; * is all."
    ),
    click.option("--cluster", is_flag=True, help="The cluster."),
)


def principal_of(text: str) -> str:
    """Return a principal with its type; a name alone is a user."""
    return text if ":" in text else _USER + text


def operation_of(text: str) -> AclOperation:
    """Return the operation with this name."""
    return AclOperation[text.upper()]


def check_operation(resource: Resource, operation: AclOperation) -> None:
    """Fail if no request asks for the operation on such a resource.

    Raises:
        UsageError: the type of resource does not have the operation.
    """
    supported = _SUPPORTED[resource.kind]
    if operation not in (AclOperation.ALL, *supported):
        names = ", ".join(each.name.lower() for each in (AclOperation.ALL, *supported))
        kind = resource.kind.name.lower().replace("_", " ")
        raise click.UsageError(
            f"{operation.name.lower()} is no operation on a {kind}; choose from: {names}"
        )


def in_order(acls: Iterable[Acl]) -> list[Acl]:
    """Return entries in the order in which they are shown."""
    return sorted(
        acls,
        key=lambda acl: (
            acl.resource_type,
            acl.resource_name,
            acl.pattern_type,
            acl.principal,
            acl.permission,
            acl.operation,
            acl.host,
        ),
    )


def as_json(acl: Acl) -> dict[str, str]:
    """Return an entry as JSON values."""
    return {
        "resource_type": acl.resource_type.name.lower(),
        "resource_name": acl.resource_name,
        "pattern_type": acl.pattern_type.name.lower(),
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name.lower(),
        "permission": acl.permission.name.lower(),
    }


def echo_acls(acls: Sequence[Acl]) -> None:
    """Print entries as a table."""
    rows = [
        (
            acl.resource_type.name.lower(),
            pattern_text(acl),
            acl.principal,
            acl.host,
            acl.operation.name.lower(),
            permission_text(acl.permission),
        )
        for acl in acls
    ]
    echo_table(("resource", "name", "principal", "host", "operation", "permission"), rows)


def pattern_text(acl: Acl) -> str:
    """Return the names that an entry is about; a prefix ends with "..."."""
    is_prefix = acl.pattern_type == PatternType.PREFIXED
    return f"{acl.resource_name}..." if is_prefix else acl.resource_name


def permission_text(permission: AclPermission) -> object:
    """Return a permission with its color."""
    name = permission.name.lower()
    return good(name) if permission == AclPermission.ALLOW else bad(name)
