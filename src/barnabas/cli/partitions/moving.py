"""Reassignments: plan, start, throttle, monitor and cancel them.

A plan uses the given brokers only. Brokers differ by at most one in their number of replicas, and
in the number of partitions whose preferred leader they are. Two replicas of a partition share a
rack only if every other rack has a replica already.

No replica moves without need. If one broker has two replicas more than another, it always has a
partition that the other broker lacks. Moving one replica per surplus is therefore sufficient and
minimal. A change of the preferred leader only reorders replicas and moves no data.

Throttles (KIP-73) limit the rates of brokers for named replicas. As in Kafka's tool, the old
replicas are throttled as leaders and the new ones as followers. Other replication keeps its speed.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.common.output import EXIT_FAILED, echo_json, problem
from barnabas.cli.common.printable import counted, echo
from barnabas.cli.common.tables import dim, echo_table, good, warn
from barnabas.cli.partitions.snapshot import take_snapshots
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.cli.partitions.snapshot import PartitionSnapshot
    from barnabas.client.admin.partitions import Reassignment
    from barnabas.client.errors import BrokerError
    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition

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


class PlanError(ValueError):
    """The requested plan is impossible; the message gives the reason."""


class Move(NamedTuple):
    """The change of one partition in a plan."""

    partition: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def adding(self) -> tuple[int, ...]:
        """Replicas that must be copied."""
        return tuple(replica for replica in self.after if replica not in self.before)

    @property
    def removing(self) -> tuple[int, ...]:
        """Replicas that are removed."""
        return tuple(replica for replica in self.before if replica not in self.after)


def moves(
    current: Mapping[TopicPartition, Sequence[int]], wanted: Mapping[TopicPartition, Sequence[int]]
) -> list[Move]:
    """Return the partitions whose replicas, or their order, change."""
    return [
        Move(tp, tuple(current[tp]), tuple(after))
        for tp, after in wanted.items()
        if tuple(current[tp]) != tuple(after)
    ]


def plan_assignment(
    current: Mapping[TopicPartition, Sequence[int]],
    racks: Mapping[int, str | None],
    replication_factor: int | None = None,
) -> dict[TopicPartition, list[int]]:
    """Return the planned replicas of each partition, preferred leader first.

    Args:
        current: The current replicas.
        racks: The brokers to use, with their racks.
        replication_factor: Number of replicas; None keeps the current number of each partition.

    Raises:
        PlanError: There are fewer brokers than replicas.
    """
    planner = _Planner(racks)
    for tp, replicas in current.items():
        count = len(replicas) if replication_factor is None else replication_factor
        if count > len(racks):
            brokers = ",".join(map(str, sorted(racks)))
            raise PlanError(f"{tp} requires {count} replicas, but the only brokers are {brokers}")
        planner.counts[tp] = count
        planner.replicas[tp] = [replica for replica in replicas if replica in racks]
    planner.fit()
    planner.spread()
    planner.balance()
    planner.lead()
    return planner.replicas


@dataclass(slots=True)
class _Planner:
    """The computation of one plan."""

    racks: Mapping[int, str | None]
    replicas: dict[TopicPartition, list[int]]
    counts: dict[TopicPartition, int]

    def __init__(self, racks: Mapping[int, str | None]) -> None:
        self.racks = racks
        self.replicas = {}
        self.counts = {}

    def load(self) -> dict[int, int]:
        """Return the number of replicas per broker."""
        load = dict.fromkeys(sorted(self.racks), 0)
        for replicas in self.replicas.values():
            for replica in replicas:
                load[replica] += 1
        return load

    def fit(self) -> None:
        """Add or remove replicas until each partition has the wanted number."""
        load = self.load()
        for tp, replicas in self.replicas.items():
            while len(replicas) > self.counts[tp]:
                # Keep the preferred leader if possible; prefer to remove a replica with a shared
                # rack.
                spare = max(
                    replicas[1:] or replicas,
                    key=lambda r: (self._count_in_rack(r, replicas), load[r], r),
                )
                replicas.remove(spare)
                load[spare] -= 1
            while len(replicas) < self.counts[tp]:
                absent = [broker for broker in load if broker not in replicas]
                added = min(absent, key=lambda b: (self._count_in_rack(b, replicas), load[b], b))
                replicas.append(added)
                load[added] += 1

    def spread(self) -> None:
        """Move replicas that share a rack to racks without a replica."""
        load = self.load()
        for replicas in self.replicas.values():
            for index, replica in enumerate(replicas):
                others = replicas[:index] + replicas[index + 1 :]
                better = [
                    b for b in load if b not in replicas and not self._count_in_rack(b, others)
                ]
                if self._count_in_rack(replica, others) and better:
                    chosen = min(better, key=lambda b: (load[b], b))
                    replicas[index] = chosen
                    load[replica] -= 1
                    load[chosen] += 1

    def balance(self) -> None:
        """Move replicas from brokers with many to brokers with few, without sharing more racks."""
        load = self.load()
        while move := self._next_move(load):
            tp, over, under = move
            replicas = self.replicas[tp]
            replicas[replicas.index(over)] = under
            load[over] -= 1
            load[under] += 1

    def _next_move(self, load: Mapping[int, int]) -> tuple[TopicPartition, int, int] | None:
        """Return a replica to move from a broker with many replicas to one with few."""
        for over in sorted(load, key=lambda b: (-load[b], b)):
            for under in sorted(load, key=lambda b: (load[b], b)):
                if load[over] - load[under] < 2:
                    break
                for tp, replicas in self.replicas.items():
                    if over not in replicas or under in replicas:
                        continue
                    others = [replica for replica in replicas if replica != over]
                    if self._count_in_rack(under, others) <= self._count_in_rack(over, others):
                        return tp, over, under
        return None

    def lead(self) -> None:
        """Change preferred leaders until brokers lead nearly the same number of partitions."""
        leads = dict.fromkeys(sorted(self.racks), 0)
        for replicas in self.replicas.values():
            leads[replicas[0]] += 1
        for over in sorted(leads, key=lambda b: -leads[b]):
            while path := self._leader_chain(over, leads):
                for tp, successor in path:
                    replicas = self.replicas[tp]
                    leads[replicas[0]] -= 1
                    leads[successor] += 1
                    replicas.remove(successor)
                    replicas.insert(0, successor)

    def _leader_chain(
        self, over: int, leads: Mapping[int, int]
    ) -> list[tuple[TopicPartition, int]]:
        """Return the shortest chain of leader changes that moves one leadership away from `over`.

        The chain ends at a broker that leads at least two partitions less. It is empty if no such
        chain exists.
        """
        came_by: dict[int, tuple[TopicPartition, int]] = {}
        waiting = deque([over])
        while waiting:
            broker = waiting.popleft()
            if leads[over] - leads[broker] >= 2:
                path = []
                while broker != over:
                    tp, before = came_by[broker]
                    path.append((tp, broker))
                    broker = before
                return path
            for tp, replicas in self.replicas.items():
                if replicas[0] != broker:
                    continue
                for follower in replicas[1:]:
                    if follower != over and follower not in came_by:
                        came_by[follower] = (tp, broker)
                        waiting.append(follower)
        return []

    def _count_in_rack(self, broker: int, replicas: Iterable[int]) -> int:
        """Return how many of `replicas` share the broker's rack; 0 without racks."""
        rack = self.racks[broker]
        if rack is None:
            return 0
        return sum(self.racks[each] == rack for each in replicas if each != broker)


_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
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


def clear_throttles(client: Client, topics: Iterable[str]) -> None:
    """Remove the throttles from the topics and from all brokers."""
    for topic in sorted(topics):
        resource = ConfigResource(ResourceType.TOPIC, topic)
        client.admin.alter_configs(resource, dict.fromkeys((_LEADERS, _FOLLOWERS)))
    for broker in client.describe_cluster().brokers:
        resource = ConfigResource(ResourceType.BROKER, str(broker.id))
        client.admin.alter_configs(resource, dict.fromkeys(_RATES))


def throttled_topics(client: Client) -> list[str]:
    """Return the topics that have throttled replicas."""
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in client.topics(internal=True)]
    found = []
    for resource, entries in client.admin.describe_configs(resources).items():
        if isinstance(entries, ClientError):
            raise entries
        if any(e.name in (_LEADERS, _FOLLOWERS) and e.value for e in entries):
            found.append(resource.name)
    return found
