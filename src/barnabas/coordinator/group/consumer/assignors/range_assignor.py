"""The `range` assignor: consecutive partitions of each topic, in the order of the members.

As in Kafka's RangeAssignor, static members come first, sorted by instance id; then the others,
sorted by member id. Topics with as many partitions and the same members are divided in the same
way, so that equal keys of such topics meet at one member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.coordinator.group.consumer.assignment import Target
    from barnabas.coordinator.group.consumer.assignors.assignor_input import AssignorInput


def assign_ranges(given: AssignorInput) -> dict[str, Target]:
    """Return the target assignment of each member."""
    order = sorted(
        given.members,
        key=lambda member_id: _sort_key(member_id, given.members[member_id].instance_id),
    )
    found: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in order}
    subscribers: dict[bytes, list[str]] = {}
    for member_id in order:
        for topic_id in given.members[member_id].subscribed_topic_ids:
            subscribers.setdefault(topic_id, []).append(member_id)
    for topic_id, members in subscribers.items():
        quota, extra = divmod(given.partition_counts[topic_id], len(members))
        first = 0
        for position, member_id in enumerate(members):
            end = first + quota + (1 if position < extra else 0)
            if end > first:
                found[member_id][topic_id] = frozenset(range(first, end))
            first = end
    return dict(found)


def _sort_key(member_id: str, instance_id: str | None) -> tuple[bool, str]:
    return (instance_id is None, member_id if instance_id is None else instance_id)
