"""Resources and operations of access control entries, and `barnabas acls why`.

The command names the entry that lets a principal do something, or that keeps it from doing it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click

from barnabas.cli.common.output import (
    EXIT_FAILED,
    ClientOptions,
    client_options,
    connected,
    echo_json,
    option_group,
)
from barnabas.cli.common.printable import echo
from barnabas.cli.common.tables import bad, echo_table, good
from barnabas.client.admin.acls import Acl, AclFilter
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError
from barnabas.metadata.acl_decision import Action, canonical_address, decide
from barnabas.metadata.acls import Acl as Entry, AclsImage
from barnabas.protocol.resources import (
    CLUSTER_NAME,
    LISTED_OPERATIONS,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from barnabas.client.facade import Client

F = TypeVar("F", bound="Callable[..., Any]")

OPERATIONS = [each.name.lower() for each in AclOperation if each > AclOperation.ANY]
_USER = "User:"
# Operations on each type of resource, besides "all".
SUPPORTED: dict[AclResourceType, tuple[AclOperation, ...]] = {
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


_resource_options = option_group(
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


def resource_options(command: F) -> F:
    """Add the options that name resources. The command gets `resources`."""

    @wraps(command)
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

    return cast("F", _resource_options(with_resources))


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
    supported = SUPPORTED[resource.kind]
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


def acl_json(acl: Acl) -> dict[str, str]:
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


_AUTHORIZER, _SUPER_USERS = "authorizer.class.name", "super.users"
_DEFAULT = "allow.everyone.if.no.acl.found"


class Verdict(NamedTuple):
    """The decision about one resource, and its reason."""

    is_allowed: bool
    reason: str
    acl: Acl | None


@click.command(
    "why",
    epilog="\b\nExamples:\n  barnabas acls why User:billing read --topic orders\n"
    "  barnabas acls why User:billing write --topic orders --host 10.0.0.7 --json\n",
)
@click.argument("principal", metavar="TYPE:NAME")
@click.argument("operation", type=click.Choice(OPERATIONS))
@resource_options
@click.option("--host", default="*", metavar="ADDRESS", help="Address of the client. [default: *]")
@client_options
def why(
    principal: str, operation: str, resources: Sequence[Resource], host: str, options: ClientOptions
) -> None:
    """Show which entry allows or denies an operation. The status is 1 if it is denied.

    Without --host, only entries for all hosts count.
    """
    if not resources:
        raise click.UsageError("name a resource: --topic, --group, --transactional-id, --cluster")
    asked = operation_of(operation)
    for resource in resources:
        check_operation(resource, asked)
    subject = principal_of(principal)
    with connected(options) as client:
        settings = authorizer_settings(client)
        verdicts = {
            resource: _decide(client, settings, resource, (subject, canonical_address(host), asked))
            for resource in resources
        }
    for resource, verdict in verdicts.items():
        if options.as_json:
            echo_json({
                "resource_type": resource.kind.name.lower(),
                "resource_name": resource.name,
                "allowed": verdict.is_allowed,
                "reason": verdict.reason,
                "acl": None if verdict.acl is None else acl_json(verdict.acl),
            })  # fmt: skip
        else:
            word = "allowed" if verdict.is_allowed else "denied"
            echo(f"{subject} {operation} {resource}: {word}, because {verdict.reason}")
    if not all(verdict.is_allowed for verdict in verdicts.values()):
        sys.exit(EXIT_FAILED)


def authorizer_settings(client: Client) -> Mapping[str, str]:
    """Return the configuration of a broker with that of its authorizer, as far as it is visible."""
    brokers = client.admin.describe_cluster().brokers
    resource = ConfigResource(ResourceType.BROKER, str(brokers[0].id))
    found = client.admin.describe_configs([resource])[resource]
    if isinstance(found, ClientError):
        return {}
    return {each.name: each.value or "" for each in found}


def _decide(
    client: Client,
    settings: Mapping[str, str],
    resource: Resource,
    asked: tuple[str, str, AclOperation],
) -> Verdict:
    principal, host, operation = asked
    above = above_entries(settings, principal)
    if above is not None:
        return Verdict(True, above, None)
    acls = client.admin.describe_acls(
        AclFilter(resource.kind, resource.name, pattern_type=PatternType.MATCH)
    )
    entries, image = image_of(acls)
    action = Action(principal, host, operation, resource.kind, resource.name)
    decision = decide(image, action)
    if decision.acl is not None:
        return Verdict(decision.acl.is_allow, _reason(entries[decision.acl]), entries[decision.acl])
    if decision.has_acls:
        count = len(entries)
        return Verdict(False, f"none of the {count} entries that apply to it covers this", None)
    is_default = settings.get(_DEFAULT) == "true"
    reason = f"no entry applies to it, and {_DEFAULT}={str(is_default).lower()}"
    return Verdict(is_default, reason, None)


def above_entries(settings: Mapping[str, str], principal: str) -> str | None:
    """Return why a principal may do everything without an entry; None if entries decide."""
    if settings.get(_AUTHORIZER) == "":
        return f"{_AUTHORIZER} is not set: every client may do everything"
    users = [each.strip() for each in settings.get(_SUPER_USERS, "").split(";")]
    return f"{principal} is one of {_SUPER_USERS}" if principal in users else None


def image_of(acls: Iterable[Acl]) -> tuple[dict[Entry, Acl], AclsImage]:
    """Return entries in the form in which brokers decide, with the client's form of each."""
    entries = {
        Entry(
            resource_type=acl.resource_type,
            resource_name=acl.resource_name,
            pattern_type=acl.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission=acl.permission,
        ): acl
        for acl in acls
    }
    return entries, AclsImage().evolve({str(n).encode(): each for n, each in enumerate(entries)})


def _reason(acl: Acl) -> str:
    verb = "allows" if acl.permission.name == "ALLOW" else "denies"
    kind = acl.resource_type.name.lower()
    return (
        f"an entry {verb} {acl.operation.name.lower()} on {kind} {pattern_text(acl)} "
        f"to {acl.principal} from {acl.host}"
    )
