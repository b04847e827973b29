"""`barnabas acls why`: which entry lets a principal do something, or keeps it from doing it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.acls.resources import (
    OPERATIONS,
    Resource,
    as_json as acl_json,
    check_operation,
    operation_of,
    pattern_text,
    principal_of,
    resource_options,
)
from barnabas.cli.common.output import EXIT_FAILED, client_options, connected, echo_json
from barnabas.cli.common.printable import echo
from barnabas.client.admin.acls import Acl, AclFilter
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError
from barnabas.metadata.acl_decision import Action, canonical_address, decide
from barnabas.metadata.acls import Acl as Entry, AclsImage
from barnabas.protocol.resources import AclOperation, PatternType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.facade import Client

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
    principal: str,
    operation: str,
    resources: Sequence[Resource],
    host: str,
    bootstrap: str,
    properties: Sequence[str],
    as_json: bool,
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
    with connected(bootstrap, properties) as client:
        settings = _settings(client)
        verdicts = {
            resource: _decide(client, settings, resource, (subject, canonical_address(host), asked))
            for resource in resources
        }
    for resource, verdict in verdicts.items():
        if as_json:
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


def _settings(client: Client) -> Mapping[str, str]:
    """Return the configuration of a broker, as far as the client may see it."""
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
    if settings.get(_AUTHORIZER) == "":
        return Verdict(True, f"{_AUTHORIZER} is not set: every client may do everything", None)
    users = [each.strip() for each in settings.get(_SUPER_USERS, "").split(";")]
    if principal in users:
        return Verdict(True, f"{principal} is one of {_SUPER_USERS}", None)
    acls = client.admin.describe_acls(
        AclFilter(resource.kind, resource.name, pattern_type=PatternType.MATCH)
    )
    entries = {
        Entry(
            acl.resource_type,
            acl.resource_name,
            acl.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission,
        ): acl
        for acl in acls
    }
    image = AclsImage().evolve({str(n).encode(): each for n, each in enumerate(entries)})
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


def _reason(acl: Acl) -> str:
    verb = "allows" if acl.permission.name == "ALLOW" else "denies"
    kind = acl.resource_type.name.lower()
    return (
        f"an entry {verb} {acl.operation.name.lower()} on {kind} {pattern_text(acl)} "
        f"to {acl.principal} from {acl.host}"
    )
