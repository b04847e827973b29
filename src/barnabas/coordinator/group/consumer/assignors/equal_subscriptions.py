"""`uniform` for members that subscribe to the same topics.

It takes the decisions of Kafka's UniformHomogeneousAssignmentBuilder. Each member keeps its
partitions up to its quota. The partitions that are left go to the members below their quotas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.assignment import NOTHING, Target
from barnabas.coordinator.group.consumer.assignors.assignor_input import STEP
from barnabas.coordinator.group.consumer.assignors.valid_targets import valid_targets
from barnabas.protocol.java_collections import (
    JavaTable,
    copied,
    member_order,
    partition_order,
    topic_id_hash,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from barnabas.coordinator.group.consumer.assignors.assignor_input import (
        Assigning,
        AssignorInput,
    )

_TopicIdPartition = tuple[bytes, int]


class _Quotas(msgspec.Struct):
    """The number of partitions of each member."""

    # Each member gets this number, and `extra` members get one more.
    minimum: int
    extra: int

    def room(self, owned: int, members_left: int) -> int:
        """Return how many partitions a member may still get; negative if it has too many.

        Members that already have one more than the minimum get the extra partitions first. Other
        members get one only if there are not enough members left.

        Args:
            owned: the number of valid partitions of the member.
            members_left: the number of members whose quota is not decided, with this one.
        """
        if not self.extra:
            return self.minimum - owned
        room = self.minimum + 1 - owned
        if room > 0 and members_left > self.extra:
            return room - 1
        self.extra -= 1
        return room


def assign_equal(given: AssignorInput) -> Assigning:
    """Return the target assignment of each member; there is at least one. Yields."""
    order = yield from member_order(given.members)
    topic_ids = given.members[order[0]].subscribed_topic_ids
    if not topic_ids:
        return dict.fromkeys(order, NOTHING)
    topics = list(JavaTable(topic_id_hash, sorted(topic_ids), copied(len(topic_ids))))
    owned, taken = yield from valid_targets(given, order)
    total = sum(given.partition_counts[topic_id] for topic_id in topics)
    quotas = _Quotas(*divmod(total, len(order)))
    targets: dict[str, Target] = {}
    revoked: list[_TopicIdPartition] = []
    below_quota: list[tuple[str, int]] = []
    for position, member_id in enumerate(order):
        target = owned[position]
        room = quotas.room(sum(map(len, target.values())), len(order) - position)
        if room < 0:
            target = _keep(target, -room, revoked)
        elif room > 0:
            below_quota.append((member_id, room))
        targets[member_id] = target
        if position % STEP == STEP - 1:
            yield
    left = _without_owner(given, topics, taken)
    yield from _assign_missing(targets, below_quota, left, iter(revoked))
    return targets


def _keep(target: Target, surplus: int, revoked: list[_TopicIdPartition]) -> Target:
    """Return a target without its last `surplus` partitions. Add these to `revoked`."""
    quota = sum(map(len, target.values())) - surplus
    kept: dict[bytes, frozenset[int]] = {}
    for topic_id in JavaTable(topic_id_hash, sorted(target)):
        partitions = target[topic_id]
        if len(partitions) > quota:
            ordered = partition_order(partitions)
            revoked += [(topic_id, partition) for partition in ordered[quota:]]
            partitions = frozenset(ordered[:quota])
        quota -= len(partitions)
        if partitions:
            kept[topic_id] = partitions
    return kept


def _without_owner(
    given: AssignorInput, topics: list[bytes], taken: dict[bytes, set[int]]
) -> Iterator[_TopicIdPartition]:
    """Yield the partitions that have no owner."""
    for topic_id in topics:
        others = taken[topic_id]
        for partition in range(given.partition_counts[topic_id]):
            if partition not in others:
                yield topic_id, partition


def _assign_missing(
    targets: dict[str, Target],
    below_quota: list[tuple[str, int]],
    left: Iterator[_TopicIdPartition],
    revoked: Iterator[_TopicIdPartition],
) -> Generator[None, None, None]:
    """Assign each member the missing number of partitions. Yields."""
    assigned = 0
    for member_id, room in below_quota:
        gained: dict[bytes, list[int]] = {}
        for _ in range(room):
            topic_id, partition = next(left, None) or next(revoked)
            gained.setdefault(topic_id, []).append(partition)
            assigned += 1
            if assigned % STEP == 0:
                yield
        target = dict(targets[member_id])
        for topic_id, partitions in gained.items():
            target[topic_id] = target.get(topic_id, frozenset()).union(partitions)
        targets[member_id] = target
    assert next(left, None) is None, f"members={len(targets)} below_quota={len(below_quota)}"
    assert next(revoked, None) is None, f"members={len(targets)} below_quota={len(below_quota)}"
