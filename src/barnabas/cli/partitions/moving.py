"""Start, monitor and cancel reassignments."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from barnabas.cli.common.output import EXIT_FAILED, echo_json, problem
from barnabas.cli.common.printable import counted, echo
from barnabas.cli.common.tables import dim, echo_table, good, warn
from barnabas.cli.partitions.snapshot import take_snapshots
from barnabas.cli.partitions.throttle import clear_throttles, set_throttles, throttled_topics
from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.cli.partitions.plan import Move
    from barnabas.cli.partitions.snapshot import PartitionSnapshot
    from barnabas.client.admin.partitions import Reassignment
    from barnabas.client.errors import BrokerError
    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition

__all__ = [
    "await_moves",
    "cancel_moves",
    "echo_moves",
    "echo_status",
    "moves_with_progress",
    "start_moves",
]

_POLL_S = 0.5


def echo_moves(planned: Sequence[Move]) -> None:
    """Print the changes of a plan."""
    if not planned:
        echo("nothing to do: all replicas are on the requested brokers")
        return
    rows = [
        (
            *move.partition,
            _nodes(move.before),
            _nodes(move.after),
            good(_nodes(move.adding)) if move.adding else dim(None),
            warn(_nodes(move.removing)) if move.removing else dim(None),
        )
        for move in planned
    ]
    echo_table(("topic", "#", "replicas", "wanted", "copied to", "removed from"), rows)


def _nodes(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes))


def start_moves(
    client: Client, planned: Sequence[Move], throttle: int | None, *, as_json: bool
) -> bool:
    """Start the planned reassignments. Return whether all of them were accepted."""
    if throttle is not None:
        set_throttles(client, planned, throttle)
    results = client.admin.alter_reassignments(
        {m.partition: m.after for m in planned}, raise_errors=False
    )
    _report(results, "began", as_json=as_json)
    if not planned and not as_json:
        echo_moves(planned)
    return all(error is None for error in results.values())


def _report(
    results: Mapping[TopicPartition, BrokerError | None], done: str, *, as_json: bool
) -> None:
    for tp, error in sorted(results.items()):
        if as_json:
            echo_json(
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "error": None if error is None else error.error_code.name,
                    "message": None if error is None else error.detail,
                }
            )
        elif error is not None:
            problem(str(error))
    if not as_json:
        fine = sum(error is None for error in results.values())
        if fine:
            echo(f"{done}: {counted(fine, 'partition')}")


def await_moves(client: Client, planned: Sequence[Move]) -> None:
    """Wait until all reassignments are complete; retriable errors are ignored meanwhile."""
    wanted = [move.partition for move in planned]
    left = len(wanted)
    reported = -1
    while left:
        time.sleep(_POLL_S)
        try:
            left = len(client.admin.list_reassignments(wanted))
        except ClientError as error:
            if not error.retriable:
                raise
            continue
        if left != reported:
            echo(f"moved {len(wanted) - left} of {len(wanted)}", err=True)
            reported = left


def echo_status(client: Client, topics: Sequence[str], *, as_json: bool) -> None:
    """Print the active reassignments; if there are none, remove leftover throttles."""
    rows = moves_with_progress(client, topics)
    if not rows:
        throttled = throttled_topics(client)
        if throttled:
            clear_throttles(client, throttled)
            echo(f"removed throttles of {', '.join(throttled)}", err=True)
    if as_json:
        echo_json(
            [
                {
                    "topic": each.partition.topic,
                    "partition": each.partition.partition,
                    "replicas": list(move.target),
                    "adding": list(move.adding),
                    "removing": list(move.removing),
                    "copied": progress,
                }
                for each, move, progress in rows
            ]
        )
    elif rows:
        echo_table(
            ("topic", "#", "wanted", "copied to", "removed from", "copied"),
            [
                (
                    *each.partition,
                    _nodes(move.target),
                    _nodes(move.adding) or dim(None),
                    _nodes(move.removing) or dim(None),
                    dim(None) if progress is None else f"{progress * 100:.0f} %",
                )
                for each, move, progress in rows
            ],
        )
    else:
        echo("nothing moves")


def moves_with_progress(
    client: Client, topics: Sequence[str]
) -> list[tuple[PartitionSnapshot, Reassignment, float | None]]:
    """Return the active reassignments of topics, and the share of the log that was copied.

    Args:
        client: A client of the cluster.
        topics: Names of topics; empty means all topics.

    Returns:
        The partition, its reassignment, and a number from 0 to 1; None if it is unknown.
    """
    moving = _moving(client, topics)
    if not moving:
        return []
    names = sorted({tp.topic for tp in moving})
    found = [each for each in take_snapshots(client, names) if each.partition in moving]
    starts = client.admin.list_offsets({each.partition: "earliest" for each in found})
    rows = []
    for each in found:
        start = starts[each.partition]
        begin = 0 if isinstance(start, ClientError) else start.offset
        move = moving[each.partition]
        rows.append((each, move, _progress(each, move, begin)))
    return rows


def _progress(shown: PartitionSnapshot, move: Reassignment, start: int) -> float | None:
    """Return the share of the log that the slowest new replica has copied; None if unknown."""
    if shown.end is None or not move.adding:
        return None
    behind = [shown.lag_of(replica) for replica in move.adding]
    length = shown.end - start
    if length <= 0:
        return 1.0
    return max(0.0, 1 - max(length if lag is None else lag for lag in behind) / length)


def _moving(client: Client, topics: Sequence[str]) -> dict[TopicPartition, Reassignment]:
    if topics:
        client.describe_topics(topics, may_be_new=False)
    found = client.admin.list_reassignments()
    return {tp: move for tp, move in found.items() if not topics or tp.topic in topics}


def cancel_moves(client: Client, topics: Sequence[str], *, as_json: bool) -> None:
    """Cancel the active reassignments, and remove their throttles."""
    moving = _moving(client, topics)
    if not moving:
        if as_json:
            echo_json([])
        else:
            echo("nothing moves")
        return
    results = client.admin.alter_reassignments(dict.fromkeys(moving), raise_errors=False)
    _report(results, "cancelled", as_json=as_json)
    throttled = set(throttled_topics(client)) & {tp.topic for tp in moving}
    if throttled:
        clear_throttles(client, throttled)
    if any(error is not None for error in results.values()):
        sys.exit(EXIT_FAILED)
