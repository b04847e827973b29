"""The commands of `barnabas acls`, as in Kafka's kafka-acls tool."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.admin.acl_resources import (
    OPERATIONS,
    Resource,
    acl_json,
    check_operation,
    echo_acls,
    in_order,
    operation_of,
    principal_of,
    resource_options,
    why,
)
from barnabas.cli.common.output import (
    EXIT_FAILED,
    ClientOptions,
    client_options,
    connected,
    echo_json,
    option_record,
    problem,
)
from barnabas.cli.common.printable import echo
from barnabas.cli.common.tables import header_option
from barnabas.cli.common.terminal import confirm, yes_option
from barnabas.client.admin.acls import Acl, AclFilter
from barnabas.client.errors import BrokerError
from barnabas.protocol.resources import AclOperation, AclPermission, AclResourceType, PatternType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.client.facade import Client

EXAMPLES = """\b
Examples:
  barnabas acls list --topic orders
  barnabas acls add User:billing --operation read --topic orders --group billing
  barnabas acls add User:billing --producer --topic orders- --prefixed
  barnabas acls add User:guest --deny --operation all --topic orders --host 10.0.0.0/8
  barnabas acls remove User:billing --topic orders
  barnabas acls why User:billing read --topic orders
"""
_PATTERNS = ("match", "literal", "prefixed", "any")
# What producers and consumers need, by type of resource.
_PRODUCER = {
    AclResourceType.TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
    AclResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
}
_CONSUMER = {
    AclResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE),
    AclResourceType.GROUP: (AclOperation.READ,),
}


@click.group(epilog=EXAMPLES)
def acls() -> None:
    """List, add and remove access control entries, and explain decisions."""


acls.add_command(why)


class _Selection(NamedTuple):
    """The entries that the options select."""

    resources: Sequence[Resource]
    pattern: str | None
    operation: str | None
    permission: str | None
    host: str | None

    def filters(self, principals: Sequence[str], pattern_of_names: str) -> list[AclFilter]:
        """Return a filter for each resource and principal; one that matches all without any.

        Args:
            principals: The principals as users type them; empty for all.
            pattern_of_names: The pattern of resources that are named without --pattern.
        """
        pattern = self.pattern or (pattern_of_names if self.resources else "any")
        operation, permission = self.operation, (self.permission or "any").upper()
        wanted: Sequence[Resource | None] = self.resources or [None]
        owners: Sequence[str | None] = [*map(principal_of, principals)] or [None]
        return [
            AclFilter(
                resource_type=AclResourceType.ANY if resource is None else resource.kind,
                resource_name=None if resource is None else resource.name,
                principal=principal,
                operation=AclOperation.ANY if operation is None else operation_of(operation),
                permission=AclPermission[permission],
                host=self.host,
                pattern_type=PatternType[pattern.upper()],
            )
            for resource in wanted
            for principal in owners
        ]


# The options that select entries.
_selecting = option_record(
    "selection",
    _Selection,
    resource_options,
    click.option(
        "--pattern",
        type=click.Choice(_PATTERNS),
        help="Entries that apply to a name (match), or of this type with this name.",
    ),
    click.option("--operation", type=click.Choice(OPERATIONS), help="Only this operation."),
    click.option("--permission", type=click.Choice(("allow", "deny")), help="Only these."),
    click.option("--host", metavar="HOST", help="Only of this host, as it is written."),
)


@acls.command(
    "list",
    epilog="\b\nExamples:\n  barnabas acls list\n  barnabas acls list User:billing --json\n"
    "  barnabas acls list --topic orders --permission deny\n",
)
@click.argument("principals", nargs=-1, metavar="[TYPE:NAME...]")
@_selecting
@header_option
@client_options
def list_acls(principals: Sequence[str], selection: _Selection, options: ClientOptions) -> None:
    """List entries: all, or those of principals and those that apply to resources."""
    filters = selection.filters(principals, "match")
    with connected(options) as client:
        found = in_order(_matching(client, filters))
    if options.as_json:
        echo_json([acl_json(acl) for acl in found])
    else:
        echo_acls(found)


@acls.command(
    "add",
    epilog="\b\nExamples:\n"
    "  barnabas acls add User:billing --operation read --topic orders --group billing\n"
    "  barnabas acls add User:billing --producer --topic orders- --prefixed\n"
    "  barnabas acls add 'User:*' --deny --operation all --topic secret --host 10.0.0.0/8\n",
)
@click.argument("principals", nargs=-1, required=True, metavar="TYPE:NAME...")
@resource_options
@click.option(
    "--operation",
    "operations",
    multiple=True,
    type=click.Choice(OPERATIONS),
    help="What the principals may do; may be repeated.",
)
@click.option("--producer", is_flag=True, help="What a producer needs.")
@click.option("--consumer", is_flag=True, help="What a consumer needs.")
@click.option("--prefixed", is_flag=True, help="The names are prefixes of names.")
@click.option("--host", default="*", metavar="HOST", help="An address or a range. [default: *]")
@click.option("--deny", is_flag=True, help="Deny instead of allow.")
@client_options
def add_acls(
    principals: Sequence[str],
    resources: Sequence[Resource],
    operations: Sequence[str],
    producer: bool,
    consumer: bool,
    prefixed: bool,
    host: str,
    deny: bool,
    options: ClientOptions,
) -> None:
    """Allow or deny operations of principals on resources."""
    pairs = _operations_on(resources, operations, producer=producer, consumer=consumer)
    wanted = [
        Acl(
            resource_type=resource.kind,
            resource_name=resource.name,
            principal=principal_of(principal),
            operation=operation,
            permission=AclPermission.DENY if deny else AclPermission.ALLOW,
            host=host,
            pattern_type=_pattern_of(resource, prefixed=prefixed),
        )
        for resource, operation in pairs
        for principal in principals
    ]
    with connected(options) as client:
        results = client.admin.create_acls(wanted, raise_errors=False)
    added = in_order(acl for acl, error in results.items() if error is None)
    if options.as_json:
        echo_json([acl_json(acl) for acl in added])
    else:
        echo_acls(added)
    _fail_if([error for error in results.values() if error is not None])


def _operations_on(
    resources: Sequence[Resource], operations: Sequence[str], *, producer: bool, consumer: bool
) -> list[tuple[Resource, AclOperation]]:
    if not resources:
        raise click.UsageError("name a resource: --topic, --group, --transactional-id, --cluster")
    if not (operations or producer or consumer):
        raise click.UsageError("name an --operation, or use --producer or --consumer")
    pairs: dict[tuple[Resource, AclOperation], None] = {}
    for resource in resources:
        for name in operations:
            operation = operation_of(name)
            check_operation(resource, operation)
            pairs[resource, operation] = None
        for is_wanted, needs in ((producer, _PRODUCER), (consumer, _CONSUMER)):
            if is_wanted:
                pairs |= dict.fromkeys((resource, each) for each in needs.get(resource.kind, ()))
    if not pairs:
        raise click.UsageError("producers need --topic, consumers --topic and --group")
    return list(pairs)


def _pattern_of(resource: Resource, *, prefixed: bool) -> PatternType:
    is_cluster = resource.kind == AclResourceType.CLUSTER
    return PatternType.PREFIXED if prefixed and not is_cluster else PatternType.LITERAL


@acls.command(
    "remove",
    epilog="\b\nExamples:\n  barnabas acls remove User:billing --topic orders --operation read\n"
    "  barnabas acls remove User:billing\n",
)
@click.argument("principals", nargs=-1, metavar="[TYPE:NAME...]")
@_selecting
@click.option("--all", "is_all", is_flag=True, help="Remove every entry of the cluster.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@yes_option
@client_options
def remove_acls(
    principals: Sequence[str],
    selection: _Selection,
    is_all: bool,
    dry_run: bool,
    options: ClientOptions,
) -> None:
    """Remove entries. A name selects literal patterns with exactly this name.

    Shows the entries and asks for confirmation on a terminal.
    """
    if not (principals or any(selection._replace(pattern=None)) or is_all):
        raise click.UsageError("choose entries by options, or give --all")
    filters = selection.filters(principals, "literal")
    errors: list[BrokerError] = []
    removed: set[Acl] = set()
    with connected(options) as client:
        if dry_run:
            removed = _matching(client, filters)
        else:
            confirm(lambda: _removal_question(_matching(client, filters)))
            for result in client.admin.delete_acls(filters).values():
                if isinstance(result, BrokerError):
                    errors.append(result)
                else:
                    removed.update(result.acls)
                    errors += result.errors
    if options.as_json:
        echo_json([acl_json(acl) for acl in in_order(removed)])
    elif removed:
        echo_acls(in_order(removed))
    else:
        echo("no entry matches")
    _fail_if(errors)


def _matching(client: Client, filters: Sequence[AclFilter]) -> set[Acl]:
    return {acl for each in filters for acl in client.admin.describe_acls(each)}


def _removal_question(found: set[Acl]) -> str:
    """Show the entries, and return the question whether to remove them."""
    if not found:
        return ""
    denying = sum(acl.permission is AclPermission.DENY for acl in found)
    echo_acls(in_order(found))
    without = f" {denying} of them deny: what they deny may be allowed then." if denying else ""
    count = "this entry" if len(found) == 1 else f"these {len(found)} entries"
    return f"Remove {count}?{without}"


def _fail_if(errors: Sequence[BrokerError]) -> None:
    """Print errors, and end the command with status 1 if there are any."""
    for error in dict.fromkeys(map(str, errors)):
        problem(error)
    if errors:
        sys.exit(EXIT_FAILED)
