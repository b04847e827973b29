"""`barnabas groups`: list, describe with lag, reset and delete groups and their offsets."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from barnabas.cli.admin.group_lag import (
    echo_streams_members,
    echo_topology,
    group_positions,
    group_progress,
    streams_json,
)
from barnabas.cli.common.named_topics import (
    complete_topics,
    group_argument,
    group_arguments,
    parse_specs,
    partitions_of,
    topic_arguments,
)
from barnabas.cli.common.output import (
    EXIT_FAILED,
    ClientOptions,
    client_options,
    connected,
    echo_json,
    fail,
    moment_ms,
    problem,
    warning,
)
from barnabas.cli.common.printable import counted, echo
from barnabas.cli.common.tables import (
    bad,
    dim,
    echo_line,
    echo_table,
    good,
    header_option,
    strong,
    warn,
)
from barnabas.cli.common.terminal import confirm, yes_option
from barnabas.cli.common.units import duration_ms
from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition, numbers_by_topic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.cli.admin.group_lag import GroupProgress, PartitionProgress
    from barnabas.client.admin.group_descriptions import GroupDescription, GroupMember
    from barnabas.client.facade import Client

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
@header_option
@client_options
def list_groups(states: Sequence[str], types: Sequence[str], options: ClientOptions) -> None:
    """List groups with their type and state."""
    with connected(options) as client:
        found = client.admin.list_groups(states, types)
        if options.as_json:
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
@group_arguments("names")
@click.option("--members", is_flag=True, help="Show the members and their partitions too.")
@header_option
@client_options
def describe_groups(names: Sequence[str], members: bool, options: ClientOptions) -> None:
    """Show the state, members, offsets and lag of groups.

    Streams groups are shown with their topology, and with --members with their tasks.

    Exit status 1: a group does not exist.
    """
    failed = False
    with connected(options) as client:
        for name, found in group_progress(client, list(dict.fromkeys(names))).items():
            if isinstance(found, ClientError):
                problem(str(found))
                failed = True
            elif found.description.state == "Dead" and not found.partitions:
                problem(f"{name}: there is no such group; `barnabas groups list` shows all")
                failed = True
            elif options.as_json:
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
            echo_table(("member", "client", "host", "reads"), rows)
        if sys.stdout.isatty():
            echo()
    rows = [
        (*each.partition, each.offset, each.end, _lag(each.lag), _reader(each))
        for each in group.partitions
    ]
    if rows:
        echo_table(("topic", "partition", "offset", "end", "lag", "read by"), rows)


def _reader(progress: PartitionProgress) -> object:
    member = progress.member
    if member is None:
        return dim(None)
    return f"{member.instance_id or member.client_id} {member.host}"


def _member_row(member: GroupMember) -> Sequence[object]:
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
@group_arguments("names")
@yes_option
@client_options
def delete_groups(names: Sequence[str], options: ClientOptions) -> None:
    """Delete groups without members, and their offsets. Asks for confirmation on a terminal."""
    confirm(f"Delete {', '.join(names)} with all offsets?")
    with connected(options) as client:
        found = client.admin.delete_groups(names, raise_errors=False)
        errors = {name: e if isinstance(e, ClientError) else None for name, e in found.items()}
        _report(errors, "group", "deleted", as_json=options.as_json)


@groups.command(
    "delete-offsets",
    epilog="\b\nExamples:\n  barnabas groups delete-offsets billing orders:0,1 refunds\n",
)
@group_argument("group")
@topic_arguments("specs", "TOPIC[:PARTITION,...]...")
@yes_option
@client_options
def delete_offsets(group: str, specs: Sequence[str], options: ClientOptions) -> None:
    """Delete the committed offsets of GROUP for topics that no member reads.

    Asks for confirmation on a terminal.
    """
    parsed = parse_specs(specs)
    with connected(options) as client:
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
            fail(f"{group} has no offsets for {' '.join(specs)}: nothing to delete")
        confirm(f"Delete the offsets of {group} in {len(wanted)} partition(s)?")
        found = client.admin.delete_offsets(group, wanted, raise_errors=False)
        errors = {str(tp): error for tp, error in found.items()}
        _report(errors, "partition", "deleted offset of", as_json=options.as_json)


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


RESET_EXAMPLES = """\b
Examples:
  barnabas groups reset billing --topic orders --to-earliest
  barnabas groups reset billing --topic orders:0,1 --to-offset 500 --execute
  barnabas groups reset billing --all-topics --to-datetime 2026-01-31T12:00 --execute
  barnabas groups reset billing --all-topics --shift-by -100
  barnabas groups reset billing --all-topics --by-duration 2h --execute

\b
Without --execute, nothing is changed. The group must have no members. A target outside of the log
is moved to the nearest offset of the log. A time after the last record means the end.
"""

_IDLE_STATES = ("Empty", "Dead")


class OffsetPlanError(ValueError):
    """The requested offsets are impossible; the message gives the reason."""


class OffsetTarget(NamedTuple):
    """The kind of target, and its value."""

    kind: str
    value: int = 0


class OffsetMove(NamedTuple):
    """The change of the committed offset (or start offset) of one partition."""

    partition: TopicPartition
    # Committed offset before the reset; None if no offset is committed.
    before: int | None
    after: int
    # Whether the target was outside of the log.
    clipped: bool


@groups.command("reset", epilog=RESET_EXAMPLES)
@group_argument("group")
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:PARTITION,...]",
    shell_complete=complete_topics,
    help="A topic, or some of its partitions. May be repeated.",
)
@click.option("--all-topics", is_flag=True, help="All topics with committed offsets of the group.")
@click.option("--to-earliest", is_flag=True, help="Move to the first record.")
@click.option("--to-latest", is_flag=True, help="Move to the end.")
@click.option(
    "--to-current", is_flag=True, help="Keep the committed offset; without one, move to the end."
)
@click.option("--to-offset", type=click.IntRange(0), metavar="N", help="Move to this offset.")
@click.option(
    "--to-datetime", metavar="ISO|MS", help="Move to the first record at or after this time."
)
@click.option(
    "--shift-by", type=int, metavar="[-]N", help="Move forward by N offsets, or back by -N."
)
@click.option("--by-duration", metavar="2h|PT2H", help="Move back by this duration.")
@click.option("--execute", is_flag=True, help="Change the offsets.")
@click.option("--dry-run", is_flag=True, help="Only show the changes, which is the default.")
@header_option
@client_options
def reset_group(
    group: str,
    topics: Sequence[str],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    to_datetime: str | None,
    shift_by: int | None,
    by_duration: str | None,
    execute: bool,
    dry_run: bool,
    options: ClientOptions,
) -> None:
    """Move the offsets of GROUP. Without --execute, only show the changes."""
    given = [
        OffsetTarget("earliest") if to_earliest else None,
        OffsetTarget("latest") if to_latest else None,
        OffsetTarget("current") if to_current else None,
        OffsetTarget("offset", to_offset) if to_offset is not None else None,
        OffsetTarget("time", moment_ms(to_datetime, "--to-datetime")) if to_datetime else None,
        OffsetTarget("shift", shift_by) if shift_by is not None else None,
        OffsetTarget("time", _ago(by_duration)) if by_duration else None,
    ]
    targets = [target for target in given if target is not None]
    if len(targets) != 1:
        raise click.UsageError(
            "give one of --to-earliest, --to-latest, --to-current, --to-offset, --to-datetime, "
            "--shift-by and --by-duration"
        )
    if execute and dry_run:
        raise click.UsageError("give either --execute or --dry-run")
    if bool(topics) == all_topics:
        raise click.UsageError("give --topic (it may be repeated) or --all-topics")
    with connected(options) as client:
        described = _idle(client, group)
        wanted = partitions_of(client, topics) if topics else None
        try:
            moves = plan_offsets(client, described, wanted, targets[0])
        except OffsetPlanError as error:
            fail(str(error))
        if execute:
            set_offsets(client, described, {move.partition: move.after for move in moves})
        _show(group, moves, done=execute, as_json=options.as_json)


def _ago(text: str) -> int:
    length = duration_ms(text)
    if length is None:
        raise click.UsageError(f"--by-duration {text}: write 90s, 15m, 2h, 7d or PnDTnHnMnS")
    return int(time.time() * 1000) - length


def _idle(client: Client, group: str) -> GroupDescription:
    """Return a group, if it has no members; else exit."""
    found = client.admin.describe_groups([group])[group]
    if isinstance(found, ClientError):
        raise found
    if found.state not in _IDLE_STATES:
        fail(
            f"{group} is {found.state} and has {len(found.members)} member(s): stop "
            "them first, because they would overwrite the new offsets"
        )
    return found


def set_offsets(
    client: Client, group: GroupDescription, offsets: Mapping[TopicPartition, int]
) -> None:
    """Set the committed offsets of a group, or the start offsets of a share group."""
    if group.type == "share":
        client.admin.alter_share_group_offsets(group.group_id, offsets)
    else:
        client.commit_offsets(group.group_id, offsets)


def plan_offsets(
    client: Client,
    group: GroupDescription,
    partitions: Sequence[TopicPartition] | None,
    target: OffsetTarget,
) -> list[OffsetMove]:
    """Return the change of each partition.

    Args:
        client: The client.
        group: The group.
        partitions: The partitions; None for all with an offset of the group.
        target: The kind of the new offsets.

    Raises:
        OffsetPlanError: The group has no offsets, which the target needs.
    """
    committed = group_positions(client, group)
    wanted = partitions
    if wanted is None:
        present = client.describe_topics()
        wanted = [
            tp
            for tp in sorted(committed)
            if tp.topic in present and tp.partition in present[tp.topic].partitions
        ]
        if not wanted:
            raise OffsetPlanError(f"{group.group_id} has no offsets: name its topics")
    starts = _offsets(client, wanted, "earliest")
    ends = _offsets(client, wanted, "latest")
    target_offsets = _target_offsets(client, wanted, target, committed, (starts, ends))
    moves = []
    for tp in wanted:
        after = min(max(target_offsets[tp], starts[tp]), ends[tp])
        moves.append(OffsetMove(tp, committed.get(tp), after, after != target_offsets[tp]))
    return moves


def _target_offsets(
    client: Client,
    wanted: Sequence[TopicPartition],
    target: OffsetTarget,
    committed: Mapping[TopicPartition, int],
    bounds: tuple[dict[TopicPartition, int], dict[TopicPartition, int]],
) -> Mapping[TopicPartition, int]:
    """Return the target offset of each partition, which may be outside of the log."""
    starts, ends = bounds
    match target.kind:
        case "earliest":
            return starts
        case "latest":
            return ends
        case "current":
            return {tp: committed.get(tp, ends[tp]) for tp in wanted}
        case "offset":
            return dict.fromkeys(wanted, target.value)
        case "time":
            found = _offsets(client, wanted, target.value)
            return {tp: ends[tp] if found[tp] < 0 else found[tp] for tp in wanted}
    missing = [str(tp) for tp in wanted if tp not in committed]
    if missing:
        names = " ".join(missing)
        raise OffsetPlanError(f"a shift requires committed offsets; there are none for {names}")
    return {tp: committed[tp] + target.value for tp in wanted}


def _offsets(
    client: Client, wanted: Sequence[TopicPartition], spec: str | int
) -> dict[TopicPartition, int]:
    found = client.list_offsets(dict.fromkeys(wanted, spec))
    return {tp: each.offset for tp, each in found.items()}


def _show(group: str, moves: Sequence[OffsetMove], *, done: bool, as_json: bool) -> None:
    if as_json:
        partitions = [
            {
                "topic": move.partition.topic,
                "partition": move.partition.partition,
                "before": move.before,
                "after": move.after,
                "clipped": move.clipped,
            }
            for move in moves
        ]
        echo_json({"group": group, "executed": done, "partitions": partitions})
        return
    rows = [(*move.partition, move.before, warn(move.after), _change(move)) for move in moves]
    echo_table(("topic", "partition", "before", "after", "by"), rows)
    clipped = [str(move.partition) for move in moves if move.clipped]
    if clipped:
        warning(
            f"the target is outside of the log, so the nearest offset is used: {' '.join(clipped)}"
        )
    if not done:
        echo("nothing was changed; use --execute to apply the changes", err=True)


def _change(move: OffsetMove) -> object:
    if move.before is None:
        return dim(None)
    by = move.after - move.before
    return f"{by:+d}" if by else "0"
