"""`barnabas groups`: list, describe with lag, reset and delete groups and their offsets."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.common.completing import complete_groups
from barnabas.cli.common.confirming import confirm, yes_option
from barnabas.cli.common.output import EXIT_FAILED, client_options, connected, echo_json, problem
from barnabas.cli.common.printable import counted, echo
from barnabas.cli.common.tables import bad, dim, echo_line, echo_table, good, strong, warn
from barnabas.cli.groups.reset import reset_group
from barnabas.cli.groups.streams_tables import echo_streams_members, echo_topology, streams_json
from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.cli.groups.group_lag import GroupProgress, PartitionProgress
    from barnabas.client.admin.group_descriptions import GroupMember

EXAMPLES = """\b
Examples:
  barnabas groups list --state stable
  barnabas groups describe billing
  barnabas groups describe billing --members --json
  barnabas groups reset billing --topic orders --to-earliest            show the changes
  barnabas groups reset billing --topic orders --to-earliest --execute
  barnabas groups delete billing
"""

_STATE_STYLES = {"Stable": good, "Empty": dim, "Dead": bad}


@click.group(epilog=EXAMPLES)
def groups() -> None:
    """List, describe, reset and delete consumer groups."""


groups.add_command(reset_group)


@groups.command("list", epilog="\b\nExamples:\n  barnabas groups list --state empty --json\n")
@click.option(
    "--state", "states", multiple=True, metavar="STATE", help="Only groups in this state."
)
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    help="Only groups of this type: classic, consumer, ...",
)
@client_options
def list_groups(
    states: Sequence[str],
    types: Sequence[str],
    bootstrap: str,
    properties: Sequence[str],
    as_json: bool,
) -> None:
    """List groups with their type and state."""
    with connected(bootstrap, properties) as client:
        found = client.admin.list_groups(states, types)
        if as_json:
            echo_json(
                [
                    {
                        "group": group.group_id,
                        "type": group.type,
                        "state": group.state,
                        "protocol_type": group.protocol_type,
                    }
                    for group in found
                ]
            )
            return
        rows = [
            (group.group_id, group.type or None, _state(group.state), group.protocol_type or None)
            for group in found
        ]
        echo_table(("group", "type", "state", "protocol"), rows)


@groups.command("describe", epilog="\b\nExamples:\n  barnabas groups describe billing --members\n")
@click.argument(
    "names", nargs=-1, required=True, metavar="GROUP...", shell_complete=complete_groups
)
@click.option("--members", is_flag=True, help="Show the members and their partitions too.")
@client_options
def describe_groups(
    names: Sequence[str],
    members: bool,
    bootstrap: str,
    properties: Sequence[str],
    as_json: bool,
) -> None:
    """Show the state, members, offsets and lag of groups.

    Streams groups are shown with their topology, and with --members with their tasks.

    Exit status 1: a group does not exist.
    """
    from barnabas.cli.groups.group_lag import group_progress

    failed = False
    with connected(bootstrap, properties) as client:
        for name, found in group_progress(client, list(dict.fromkeys(names))).items():
            if isinstance(found, ClientError):
                problem(str(found))
                failed = True
            elif found.description.state == "Dead" and not found.partitions:
                problem(f"{name}: there is no such group; `barnabas groups list` shows all")
                failed = True
            elif as_json:
                echo_json(_group_json(found))
            else:
                _echo_group(found, with_members=members)
    if failed:
        sys.exit(EXIT_FAILED)


def _echo_group(group: GroupProgress, *, with_members: bool) -> None:
    described = group.description
    protocol = f", {described.protocol}" if described.protocol else ""
    coordinator = "" if group.coordinator is None else f", coordinator {group.coordinator}"
    echo_line(
        strong(described.group_id),
        ": ",
        _state(described.state),
        f", {described.type}{protocol}, {counted(len(described.members), 'member')}{coordinator}",
        ", lag ",
        _lag(group.lag),
    )
    if group.streams is not None:
        echo_topology(group.streams)
    if with_members and described.members:
        if group.streams is not None:
            echo_streams_members(group.streams)
        else:
            rows = [_member_row(member) for member in described.members]
            echo_table(("member", "client", "host", "reads"), rows, is_described=True)
        if sys.stdout.isatty():
            echo()
    rows = [
        (*each.partition, each.offset, each.end, _lag(each.lag), _reader(each))
        for each in group.partitions
    ]
    if rows:
        echo_table(
            ("topic", "partition", "offset", "end", "lag", "read by"), rows, is_described=True
        )


def _reader(progress: PartitionProgress) -> object:
    member = progress.member
    if member is None:
        return dim(None)
    return f"{member.instance_id or member.client_id} {member.host}"


def _member_row(member: GroupMember) -> Sequence[object]:
    from barnabas.client.topic_partition import numbers_by_topic

    topics = numbers_by_topic(member.assignment)
    reads = " ".join(f"{topic}:{','.join(map(str, n))}" for topic, n in topics.items())
    name = member.member_id
    if member.instance_id:
        name = f"{member.instance_id} ({name})"
    return name, member.client_id, member.host, reads or dim(None)


def _state(state: str) -> object:
    return _STATE_STYLES.get(state, warn)(state or None)


def _lag(lag: int | None) -> object:
    if lag is None:
        return dim(None)
    return warn(lag) if lag else good(lag)


def _group_json(group: GroupProgress) -> dict[str, Any]:
    described = group.description
    return {
        "group": described.group_id,
        "type": described.type,
        "state": described.state,
        "protocol_type": described.protocol_type,
        "protocol": described.protocol,
        "coordinator": group.coordinator,
        "lag": group.lag,
        "members": [
            {
                "member": member.member_id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.host,
                "topics": list(member.topics),
                "reads": [{"topic": t, "partition": p} for t, p in member.assignment],
            }
            for member in described.members
        ],
        "partitions": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "offset": each.offset,
                "end": each.end,
                "lag": each.lag,
                "metadata": each.metadata,
                "member": None if each.member is None else each.member.member_id,
            }
            for each in group.partitions
        ],
        **({} if group.streams is None else {"streams": streams_json(group.streams)}),
    }


@groups.command("delete", epilog="\b\nExamples:\n  barnabas groups delete billing --yes\n")
@click.argument(
    "names", nargs=-1, required=True, metavar="GROUP...", shell_complete=complete_groups
)
@yes_option
@client_options
def delete_groups(
    names: Sequence[str], yes: bool, bootstrap: str, properties: Sequence[str], as_json: bool
) -> None:
    """Delete groups without members, and their offsets. Asks for confirmation on a terminal."""
    confirm(f"Delete {', '.join(names)} with all offsets?", yes=yes)
    with connected(bootstrap, properties) as client:
        found = client.admin.delete_groups(names, raise_errors=False)
        errors = {name: e if isinstance(e, ClientError) else None for name, e in found.items()}
        _report(errors, "group", "deleted", as_json=as_json)


@groups.command(
    "delete-offsets",
    epilog="\b\nExamples:\n  barnabas groups delete-offsets billing orders:0,1 refunds\n",
)
@click.argument("group", shell_complete=complete_groups)
@click.argument("specs", nargs=-1, required=True, metavar="TOPIC[:PARTITION,...]...")
@yes_option
@client_options
def delete_offsets(
    group: str,
    specs: Sequence[str],
    yes: bool,
    bootstrap: str,
    properties: Sequence[str],
    as_json: bool,
) -> None:
    """Delete the committed offsets of GROUP for topics that no member reads.

    Asks for confirmation on a terminal.
    """
    from barnabas.cli.common.partition_specs import parse_specs
    from barnabas.client.topic_partition import TopicPartition

    parsed = parse_specs(specs)
    with connected(bootstrap, properties) as client:
        # Use the committed partitions, not the existing ones: the topic may be deleted.
        committed = client.committed(group)
        wanted = [
            tp
            for topic, numbers in parsed
            for tp in (
                [TopicPartition(topic, number) for number in numbers]
                or [tp for tp in committed if tp.topic == topic]
            )
        ]
        if not wanted:
            problem(f"{group} has no offsets for {' '.join(specs)}: nothing to delete")
            sys.exit(EXIT_FAILED)
        confirm(f"Delete the offsets of {group} in {len(wanted)} partition(s)?", yes=yes)
        found = client.admin.delete_offsets(group, wanted, raise_errors=False)
        errors = {str(tp): error for tp, error in found.items()}
        _report(errors, "partition", "deleted offset of", as_json=as_json)


def _report(
    results: Mapping[str, ClientError | None], what: str, done: str, *, as_json: bool
) -> None:
    """Print the result for each name; exit with status 1 if an operation failed."""
    for name, error in results.items():
        if as_json:
            code = None if error is None or error.error_code is None else error.error_code.name
            echo_json({what: name, "error": code, "message": error and str(error)})
        elif error is None:
            echo(f"{done} {name}")
        else:
            problem(str(error))
    if any(error is not None for error in results.values()):
        sys.exit(EXIT_FAILED)
