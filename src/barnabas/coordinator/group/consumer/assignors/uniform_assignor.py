"""The `uniform` assignor: balanced first, then as few movements as possible.

If all members subscribe to the same topics, it takes Kafka's decisions
(UniformHomogeneousAssignmentBuilder), with the members in the order of their ids. Otherwise it
levels the load within the limits of the subscriptions, as Kafka's heterogeneous builder does. The
choice between equally good assignments is its own.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from barnabas.coordinator.group.consumer.assignment import target_of

if TYPE_CHECKING:
    from barnabas.coordinator.group.consumer.assignment import Target
    from barnabas.coordinator.group.consumer.assignors.assignor_input import AssignorInput

_Place = tuple[bytes, int]


def assign_uniformly(given: AssignorInput) -> dict[str, Target]:
    """Return the target assignment of each member."""
    if given.is_homogeneous:
        return _assign_equals(given)
    return _Leveling(given).assign()


def _assign_equals(given: AssignorInput) -> dict[str, Target]:
    """Assign to members with equal subscriptions: a quota each, and what is left to the first."""
    order = sorted(given.members)
    if not order:
        return {}
    topic_ids = given.members[order[0]].subscribed_topic_ids
    total = sum(given.partition_counts[topic_id] for topic_id in topic_ids)
    minimum, extra = divmod(total, len(order))
    kept: dict[str, dict[bytes, set[int]]] = {}
    room: dict[str, int] = {}
    taken: set[_Place] = set()
    for member_id in order:
        quota = minimum + (1 if extra > 0 else 0)
        extra -= 1
        own: dict[bytes, set[int]] = {}
        for topic_id, partitions in given.members[member_id].target.items():
            if topic_id not in topic_ids:
                continue
            for partition in sorted(partitions):
                place = (topic_id, partition)
                if quota and partition < given.partition_counts[topic_id] and place not in taken:
                    quota -= 1
                    taken.add(place)
                    own.setdefault(topic_id, set()).add(partition)
        kept[member_id] = own
        room[member_id] = quota
    left = iter(
        [
            (topic_id, partition)
            for topic_id in sorted(topic_ids)
            for partition in range(given.partition_counts[topic_id])
            if (topic_id, partition) not in taken
        ]
    )
    for member_id in order:
        for _ in range(room[member_id]):
            topic_id, partition = next(left)
            kept[member_id].setdefault(topic_id, set()).add(partition)
    assert next(left, None) is None, f"members={len(order)} partitions={total}"
    return {member_id: target_of(own) for member_id, own in kept.items()}


class _Leveling:
    """Levels the load of members with different subscriptions."""

    def __init__(self, given: AssignorInput) -> None:
        self._given = given
        # Members by topic, in the order of their ids.
        self._subscribers: dict[bytes, list[str]] = defaultdict(list)
        for member_id in sorted(given.members):
            for topic_id in given.members[member_id].subscribed_topic_ids:
                self._subscribers[topic_id].append(member_id)
        # Partitions by member and topic, and the number of partitions by member.
        self._owned: dict[str, dict[bytes, set[int]]] = {each: {} for each in given.members}
        self._load: dict[str, int] = dict.fromkeys(given.members, 0)

    def assign(self) -> dict[str, Target]:
        """Keep what is possible, assign the rest, and level the load."""
        topics = self._topics()
        taken = self._keep()
        for topic_id in topics:
            for partition in range(self._given.partition_counts[topic_id]):
                if (topic_id, partition) not in taken:
                    self._add(self._least(topic_id), topic_id, partition)
        # Each movement lowers the sum of squares of the loads, so the loop ends.
        while any(self._level(topic_id) for topic_id in topics):
            pass
        return {member_id: target_of(owned) for member_id, owned in self._owned.items()}

    def _topics(self) -> list[bytes]:
        """Return the topics whose partitions weigh most on their subscribers first."""
        counts = self._given.partition_counts

        def weight(topic_id: bytes) -> tuple[float, int, bytes]:
            subscribers = len(self._subscribers[topic_id])
            return (-counts[topic_id] / subscribers, subscribers, topic_id)

        return sorted(self._subscribers, key=weight)

    def _keep(self) -> set[_Place]:
        """Keep the partitions of the current target that are still valid. Return them."""
        taken: set[_Place] = set()
        for member_id, member in sorted(self._given.members.items()):
            for topic_id, partitions in member.target.items():
                if topic_id not in member.subscribed_topic_ids:
                    continue
                for partition in partitions:
                    place = (topic_id, partition)
                    if partition < self._given.partition_counts[topic_id] and place not in taken:
                        taken.add(place)
                        self._add(member_id, topic_id, partition)
        return taken

    def _level(self, topic_id: bytes) -> bool:
        """Move partitions of one topic from heavily to lightly loaded subscribers."""
        moved = False
        while True:
            owners = [
                each for each in self._subscribers[topic_id] if self._owned[each].get(topic_id)
            ]
            if not owners:
                return moved
            heaviest = max(owners, key=lambda each: self._load[each])
            lightest = self._least(topic_id)
            if self._load[heaviest] <= self._load[lightest] + 1:
                return moved
            partition = max(self._owned[heaviest][topic_id])
            self._owned[heaviest][topic_id].remove(partition)
            self._load[heaviest] -= 1
            self._add(lightest, topic_id, partition)
            moved = True

    def _least(self, topic_id: bytes) -> str:
        """Return the subscriber with the smallest load; of equals, the one with the first id."""
        return min(self._subscribers[topic_id], key=lambda each: self._load[each])

    def _add(self, member_id: str, topic_id: bytes, partition: int) -> None:
        self._owned[member_id].setdefault(topic_id, set()).add(partition)
        self._load[member_id] += 1
