"""`barnabas groups reset`: move a group's offsets. Without --execute, only show the changes."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.common.completing import complete_groups, complete_topics
from barnabas.cli.common.output import (
    EXIT_FAILED,
    client_options,
    connected,
    echo_json,
    moment_ms,
    problem,
    warning,
)
from barnabas.cli.common.partition_specs import partitions_of
from barnabas.cli.common.printable import echo
from barnabas.cli.common.tables import dim, echo_table, warn
from barnabas.cli.common.units import duration_ms
from barnabas.cli.groups.group_lag import group_positions
from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.admin.group_descriptions import GroupDescription
    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition

EXAMPLES = """\b
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


class Target(NamedTuple):
    """The kind of target, and its value."""

    kind: str
    value: int = 0


class Move(NamedTuple):
    """The change of the committed offset (or start offset) of one partition."""

    partition: TopicPartition
    # Committed offset before the reset; None if no offset is committed.
    before: int | None
    after: int
    # Whether the target was outside of the log.
    clipped: bool


@click.command("reset", epilog=EXAMPLES)
@click.argument("group", shell_complete=complete_groups)
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
    bootstrap: str,
    properties: Sequence[str],
    as_json: bool,
) -> None:
    """Move the offsets of GROUP. Without --execute, only show the changes."""
    given = [
        Target("earliest") if to_earliest else None,
        Target("latest") if to_latest else None,
        Target("current") if to_current else None,
        Target("offset", to_offset) if to_offset is not None else None,
        Target("time", moment_ms(to_datetime, "--to-datetime")) if to_datetime else None,
        Target("shift", shift_by) if shift_by is not None else None,
        Target("time", _ago(by_duration)) if by_duration else None,
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
    with connected(bootstrap, properties) as client:
        described = _idle(client, group)
        moves = _plan(client, described, topics, targets[0])
        if execute:
            _move(client, described, {move.partition: move.after for move in moves})
        _show(group, moves, done=execute, as_json=as_json)


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
        problem(
            f"{group} is {found.state} and has {len(found.members)} member(s): stop "
            "them first, because they would overwrite the new offsets"
        )
        sys.exit(EXIT_FAILED)
    return found


def _move(client: Client, group: GroupDescription, offsets: Mapping[TopicPartition, int]) -> None:
    if group.type == "share":
        client.admin.alter_share_group_offsets(group.group_id, offsets)
    else:
        client.commit_offsets(group.group_id, offsets)


def _plan(
    client: Client, group: GroupDescription, topics: Sequence[str], target: Target
) -> list[Move]:
    committed = group_positions(client, group)
    if topics:
        wanted = partitions_of(client, topics)
    else:
        present = client.describe_topics()
        wanted = [
            tp
            for tp in sorted(committed)
            if tp.topic in present and tp.partition in present[tp.topic].partitions
        ]
        if not wanted:
            problem(f"{group.group_id} has no offsets: name topics with --topic")
            sys.exit(EXIT_FAILED)
    starts = _offsets(client, wanted, "earliest")
    ends = _offsets(client, wanted, "latest")
    target_offsets = _target_offsets(client, wanted, target, committed, (starts, ends))
    moves = []
    for tp in wanted:
        after = min(max(target_offsets[tp], starts[tp]), ends[tp])
        moves.append(Move(tp, committed.get(tp), after, after != target_offsets[tp]))
    return moves


def _target_offsets(
    client: Client,
    wanted: Sequence[TopicPartition],
    target: Target,
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
        problem(f"--shift-by requires committed offsets; there are none for {' '.join(missing)}")
        sys.exit(EXIT_FAILED)
    return {tp: committed[tp] + target.value for tp in wanted}


def _offsets(
    client: Client, wanted: Sequence[TopicPartition], spec: str | int
) -> dict[TopicPartition, int]:
    found = client.list_offsets(dict.fromkeys(wanted, spec))
    return {tp: each.offset for tp, each in found.items()}


def _show(group: str, moves: Sequence[Move], *, done: bool, as_json: bool) -> None:
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


def _change(move: Move) -> object:
    if move.before is None:
        return dim(None)
    by = move.after - move.before
    return f"{by:+d}" if by else "0"
