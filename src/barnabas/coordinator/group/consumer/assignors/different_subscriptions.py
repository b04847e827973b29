"""`uniform` for members with different subscriptions.

It takes the decisions of Kafka's UniformHeterogeneousAssignmentBuilder: members keep their valid
partitions, the other partitions go to the subscribers with the fewest partitions, and then the
topics are leveled one by one until nothing moves.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from barnabas.coordinator.group.assignment import NOTHING, Target
from barnabas.coordinator.group.consumer.assignors.assignor_input import STEP
from barnabas.coordinator.group.consumer.assignors.load_ranges import LoadRanges
from barnabas.coordinator.group.consumer.assignors.valid_targets import valid_targets
from barnabas.protocol.java_collections import member_order

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.coordinator.group.consumer.assignors.assignor_input import (
        Assigning,
        AssignorInput,
    )

# Kafka's limit. Topics with partly common subscribers may need many rounds.
_ROUNDS_MAX = 16
_FREE = -1
_UUID = struct.Struct(">qq")


def assign_different(given: AssignorInput) -> Assigning:
    """Return the target assignment of each member; there is at least one. Yields."""
    order = yield from member_order(given.members)
    return (yield from _Leveling(given, order).assign())


class _Leveling:
    """Levels the numbers of partitions of the members, which are numbered in Kafka's order."""

    __slots__ = ("_counts", "_given", "_loads", "_order", "_owners", "_subscribers", "_targets")

    def __init__(self, given: AssignorInput, order: list[str]) -> None:
        self._given = given
        self._order = order
        self._counts = given.partition_counts
        # Indexes of the subscribed members by topic id, ascending.
        self._subscribers: dict[bytes, list[int]] = {}
        # Index of the owner of each partition, or _FREE, by topic id.
        self._owners: dict[bytes, list[int]] = {}
        # Number of partitions of each member.
        self._loads: list[int] = [0] * len(order)
        # The valid part of each member's current target.
        self._targets: list[Target] = []

    def assign(self) -> Assigning:
        """Keep the valid assignments, assign the other partitions, and level the load. Yields."""
        yield from self._subscribe()
        yield from self._keep()
        topics = sorted(self._subscribers, key=self._weight)
        yield
        for topic_id in topics:
            yield from self._assign_free(topic_id)
        shared = [each for each in topics if len(self._subscribers[each]) > 1]
        yield from self._level_all(shared)
        return (yield from self._result())

    def _subscribe(self) -> Generator[None, None, None]:
        done = 0
        for index, member_id in enumerate(self._order):
            topic_ids = self._given.members[member_id].subscribed_topic_ids
            for topic_id in topic_ids:
                self._subscribers.setdefault(topic_id, []).append(index)
            done += 1 + len(topic_ids)
            if done >= STEP:
                done = 0
                yield

    def _weight(self, topic_id: bytes) -> tuple[float, int, tuple[int, ...]]:
        """Return the sort key of a topic: those with the most partitions per subscriber first.

        Java compares the halves of topic ids as signed numbers.
        """
        subscribers = len(self._subscribers[topic_id])
        return (-self._counts[topic_id] / subscribers, subscribers, _UUID.unpack(topic_id))

    def _keep(self) -> Generator[None, None, None]:
        """Keep the partitions of the current target that are still valid."""
        self._owners = {each: [_FREE] * self._counts[each] for each in self._subscribers}
        self._targets, _ = yield from valid_targets(self._given, self._order)
        done = 0
        for index, target in enumerate(self._targets):
            for topic_id, partitions in target.items():
                owners = self._owners[topic_id]
                self._loads[index] += len(partitions)
                for partition in partitions:
                    owners[partition] = index
            done += 1 + self._loads[index]
            if done >= STEP:
                done = 0
                yield

    def _assign_free(self, topic_id: bytes) -> Generator[None, None, None]:
        """Assign the partitions without an owner to the subscribers with the fewest partitions."""
        owners = self._owners[topic_id]
        free = [partition for partition, owner in enumerate(owners) if owner == _FREE]
        if not free:
            return
        ranges = LoadRanges(self._loads, self._subscribers[topic_id])
        yield
        for position, partition in enumerate(free):
            owners[partition] = member = ranges.next_least()
            self._loads[member] += 1
            if position % STEP == STEP - 1:
                yield

    def _level_all(self, topics: list[bytes]) -> Generator[None, None, None]:
        """Level topic by topic, until a whole round has moved nothing."""
        last_moved: bytes | None = None
        for _ in range(_ROUNDS_MAX):
            for topic_id in topics:
                if topic_id == last_moved:
                    return
                moved = yield from self._level(topic_id)
                if moved or last_moved is None:
                    last_moved = topic_id

    def _level(self, topic_id: bytes) -> Generator[None, None, bool]:
        """Move partitions of one topic to members with fewer. Return whether it has moved any."""
        ranges = LoadRanges(self._loads, self._subscribers[topic_id])
        yield
        if ranges.imbalance <= 1:
            return False
        owners = self._owners[topic_id]
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            owned.setdefault(owner, []).append(partition)
        moved = 0
        while not ranges.is_level:
            giver = ranges.next_most()
            while giver is not None and not owned.get(giver):
                ranges.exclude_most()
                giver = ranges.next_most()
            if giver is None:
                break
            partition = owned[giver].pop()
            taker = ranges.next_least()
            if ranges.is_level:
                break
            owners[partition] = taker
            self._loads[giver] -= 1
            self._loads[taker] += 1
            moved += 1
            if moved % STEP == 0:
                yield
        return moved > 0

    def _result(self) -> Assigning:
        """Return the target of each member. Members whose partitions stay keep their object."""
        found: list[dict[bytes, list[int]]] = [{} for _ in self._order]
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                found[owner].setdefault(topic_id, []).append(partition)
                if partition % STEP == STEP - 1:
                    yield
        targets: dict[str, Target] = {}
        done = 0
        for index, member_id in enumerate(self._order):
            own = found[index]
            target: Target = {each: frozenset(listed) for each, listed in own.items()} or NOTHING
            before = self._targets[index]
            targets[member_id] = before if before == target else target
            done += 1 + len(target)
            if done >= STEP:
                done = 0
                yield
        return targets
