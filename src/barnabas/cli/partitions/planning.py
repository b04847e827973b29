"""Plans of reassignments that give brokers the same number of replicas.

A plan uses the given brokers only. Brokers differ by at most one in their number of replicas, and
in the number of partitions whose preferred leader they are. Two replicas of a partition share a
rack only if every other rack has a replica already, and the same holds for machines.

No replica moves without need. If one broker has two replicas more than another, it always has a
partition that the other broker lacks. Moving one replica per surplus is therefore sufficient and
minimal. A change of the preferred leader only reorders replicas and moves no data.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from barnabas.metadata.machines import told_apart

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.topic_partition import TopicPartition


class PlanError(ValueError):
    """The requested plan is impossible; the message gives the reason."""


def too_few_brokers(tp: TopicPartition, replicas: int, brokers: Iterable[int]) -> PlanError:
    """Return the error of a partition that requires more replicas than there are brokers."""
    names = ",".join(map(str, sorted(brokers)))
    return PlanError(
        f"{tp} requires {replicas} replicas, but the only brokers are {names}: add a broker, or "
        "lower the replication factor"
    )


def sharing_machines(
    replicas: Mapping[TopicPartition, Sequence[int]],
    machines: Mapping[int, str],
    usable: Iterable[int],
) -> list[TopicPartition]:
    """Return the partitions with replicas that share a machine, though another has no replica.

    Args:
        replicas: The replicas of each partition.
        machines: Machine by broker, of all registered brokers.
        usable: The brokers that may get replicas.
    """
    free = {machines[broker] for broker in usable}
    found = []
    for tp, nodes in replicas.items():
        used = {machines.get(node, str(node)) for node in nodes}
        if len(used) < len(nodes) and not free <= used:
            found.append(tp)
    return found


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
    machines: Mapping[int, str] | None = None,
) -> dict[TopicPartition, list[int]]:
    """Return the planned replicas of each partition, preferred leader first.

    Args:
        current: The current replicas.
        racks: The brokers to use, with their racks.
        replication_factor: Number of replicas; None keeps the current number of each partition.
        machines: Machine by broker; None if each broker has its own.

    Raises:
        PlanError: There are fewer brokers than replicas.
    """
    planner = _Planner(racks, told_apart(machines or {}, racks))
    for tp, replicas in current.items():
        count = len(replicas) if replication_factor is None else replication_factor
        if count > len(racks):
            raise too_few_brokers(tp, count, racks)
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
    machines: Mapping[int, object]
    replicas: dict[TopicPartition, list[int]] = field(default_factory=dict)
    counts: dict[TopicPartition, int] = field(default_factory=dict)

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
                # machine or rack.
                spare = max(
                    replicas[1:] or replicas,
                    key=lambda r: (*self._sharing(r, replicas), load[r], r),
                )
                replicas.remove(spare)
                load[spare] -= 1
            while len(replicas) < self.counts[tp]:
                absent = [broker for broker in load if broker not in replicas]
                added = min(absent, key=lambda b: (*self._sharing(b, replicas), load[b], b))
                replicas.append(added)
                load[added] += 1

    def spread(self) -> None:
        """Move replicas that share a machine or rack to one without a replica."""
        load = self.load()
        for replicas in self.replicas.values():
            for index, replica in enumerate(replicas):
                others = replicas[:index] + replicas[index + 1 :]
                better = [
                    broker
                    for broker in load
                    if broker not in replicas and self._is_better_place(broker, replica, others)
                ]
                if better:
                    chosen = min(better, key=lambda b: (*self._sharing(b, others), load[b], b))
                    replicas[index] = chosen
                    load[replica] -= 1
                    load[chosen] += 1

    def _is_better_place(self, broker: int, replica: int, others: Sequence[int]) -> bool:
        """Return whether a broker's machine or rack has no replica, and that of `replica` has."""
        on_machine, in_rack = self._sharing(replica, others)
        new_on_machine, new_in_rack = self._sharing(broker, others)
        if on_machine and not new_on_machine:
            return True
        return bool(in_rack) and not new_in_rack and new_on_machine <= on_machine

    def balance(self) -> None:
        """Move replicas from brokers with many to brokers with few.

        No partition shares more machines or racks than before.
        """
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
                    pairs = zip(
                        self._sharing(under, others), self._sharing(over, others), strict=True
                    )
                    if all(new <= old for new, old in pairs):
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

    def _sharing(self, broker: int, replicas: Iterable[int]) -> tuple[int, int]:
        """Return how many of `replicas` are on the broker's machine, and in its rack.

        The second number is 0 for a broker without a rack.
        """
        machine, rack = self.machines[broker], self.racks[broker]
        others = [each for each in replicas if each != broker]
        on_machine = sum(self.machines[each] == machine for each in others)
        in_rack = 0 if rack is None else sum(self.racks[each] == rack for each in others)
        return on_machine, in_rack
