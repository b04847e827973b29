"""Reassignments: start, throttle, monitor and cancel them.

Throttles (KIP-73) limit the rates of brokers for named replicas. As in Kafka's tool, the old
replicas are throttled as leaders and the new ones as followers. Other replication keeps its speed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from barnabas.cli.common.output import EXIT_FAILED, echo_json, problem, warning
from barnabas.cli.common.printable import counted, echo
from barnabas.cli.common.tables import dim, echo_table, good, warn
from barnabas.cli.partitions.move_progress import await_moves
from barnabas.cli.partitions.snapshot import take_snapshots
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.cli.partitions.planning import Move
    from barnabas.cli.partitions.snapshot import PartitionSnapshot
    from barnabas.client.admin.partitions import Reassignment
    from barnabas.client.errors import BrokerError
    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition

_WAY_ON = (
    "`barnabas rebalance status` shows the progress, `barnabas rebalance stop` cancels, and "
    "removes throttles also after the moves"
)


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


def run_moves(
    client: Client, planned: Sequence[Move], throttle: int | None, *, wait: bool, as_json: bool
) -> bool:
    """Start the planned reassignments, and wait for them if requested.

    Args:
        client: The client of the command.
        planned: The changes.
        throttle: Bytes per second for each broker; None for no limit.
        wait: Whether to wait until all replicas have moved. Throttles are then removed.
        as_json: Whether the result is printed as JSON.

    Returns:
        Whether all reassignments were accepted.
    """
    if throttle is not None:
        set_throttles(client, planned, throttle)
    results = client.admin.alter_reassignments(
        {m.partition: m.after for m in planned}, raise_errors=False
    )
    _report(results, "began", as_json=as_json)
    if any(results.values()):
        if throttle is not None and all(results.values()):
            clear_throttles(client, {move.partition.topic for move in planned})
        return False
    if not planned and not as_json:
        echo_moves(planned)
    if wait and planned:
        try:
            await_moves(client, planned)
        except KeyboardInterrupt:
            echo(f"the replicas go on moving: {_WAY_ON}", err=True)
            raise
        if throttle is not None:
            clear_throttles(client, {move.partition.topic for move in planned})
    elif planned:
        echo(f"the replicas move in the background: {_WAY_ON}", err=True)
    return True


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


def echo_status(client: Client, topics: Sequence[str], *, as_json: bool) -> None:
    """Print the active reassignments; if there are none, name topics that are throttled yet."""
    rows = moves_with_progress(client, topics)
    throttled = [] if rows else _throttled_by_moves(client, topics)
    if throttled:
        warning(
            f"{', '.join(throttled)}: replication is throttled, and nothing moves; "
            "`barnabas rebalance stop` removes the throttles of moves"
        )
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
    """Cancel the active reassignments, and remove the throttles of these and of earlier ones."""
    moving = _moving(client, topics)
    results: Mapping[TopicPartition, BrokerError | None] = {}
    if moving:
        results = client.admin.alter_reassignments(dict.fromkeys(moving), raise_errors=False)
        _report(results, "cancelled", as_json=as_json)
    elif as_json:
        echo_json([])
    else:
        echo("nothing moves")
    throttled = _throttled_by_moves(client, topics)
    if throttled:
        clear_throttles(client, throttled)
        echo(f"removed throttles of {', '.join(throttled)}", err=True)
    if any(error is not None for error in results.values()):
        sys.exit(EXIT_FAILED)


_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
# The default of these keys, which means that there is no limit.
_NO_RATE = 2**63 - 1
_LEADERS = "leader.replication.throttled.replicas"
_FOLLOWERS = "follower.replication.throttled.replicas"


def set_throttles(client: Client, planned: Sequence[Move], bytes_per_second: int) -> None:
    """Throttle the replicas that a plan copies."""
    by_topic: dict[str, list[Move]] = {}
    brokers: set[int] = set()
    for move in planned:
        if move.adding:
            by_topic.setdefault(move.partition.topic, []).append(move)
            brokers.update(move.before, move.adding)
    rates = dict.fromkeys(_RATES, str(bytes_per_second))
    for broker in sorted(brokers):
        client.admin.alter_configs(ConfigResource(ResourceType.BROKER, str(broker)), rates)
    for topic, its in by_topic.items():
        lists = {
            _LEADERS: ",".join(f"{m.partition.partition}:{r}" for m in its for r in m.before),
            _FOLLOWERS: ",".join(f"{m.partition.partition}:{r}" for m in its for r in m.adding),
        }
        client.admin.alter_configs(ConfigResource(ResourceType.TOPIC, topic), lists)


def broker_limits(client: Client, brokers: Iterable[int]) -> dict[int, int | None]:
    """Return the bytes per second to which the moves of each broker are limited; None for no limit.

    Raises:
        ClientError: The configs of a broker cannot be read.
    """
    limits: dict[int, int | None] = {}
    for broker in brokers:
        resource = ConfigResource(ResourceType.BROKER, str(broker))
        entries = client.admin.describe_configs([resource], keys=_RATES)[resource]
        if isinstance(entries, ClientError):
            raise entries
        values = [int(each.value) for each in entries if each.value and int(each.value) < _NO_RATE]
        limits[broker] = min(values, default=None)
    return limits


def clear_throttles(client: Client, topics: Iterable[str]) -> None:
    """Remove the throttles of topics, and those of all brokers if no other topic is throttled."""
    cleared = set(topics)
    others = throttled_replicas(client).keys() - cleared
    for topic in sorted(cleared):
        resource = ConfigResource(ResourceType.TOPIC, topic)
        client.admin.alter_configs(resource, dict.fromkeys((_LEADERS, _FOLLOWERS)))
    if others:
        return
    for broker in client.describe_cluster().brokers:
        resource = ConfigResource(ResourceType.BROKER, str(broker.id))
        client.admin.alter_configs(resource, dict.fromkeys(_RATES))


def throttled_replicas(client: Client) -> dict[str, set[str]]:
    """Return the topics that have throttled replicas, with the lists of these replicas."""
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in client.topics(internal=True)]
    found: dict[str, set[str]] = {}
    for resource, entries in client.admin.describe_configs(resources).items():
        if isinstance(entries, ClientError):
            raise entries
        lists = {e.value for e in entries if e.name in (_LEADERS, _FOLLOWERS) and e.value}
        if lists:
            found[resource.name] = lists
    return found


def _throttled_by_moves(client: Client, topics: Sequence[str]) -> list[str]:
    """Return which of the topics (all if empty) have throttles as moves set them.

    Moves name each replica. A list of `*` is the choice of a user, and stays.
    """
    return sorted(
        topic
        for topic, lists in throttled_replicas(client).items()
        if "*" not in lists and (not topics or topic in topics)
    )
