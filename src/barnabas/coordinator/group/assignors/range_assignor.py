"""The `range` assignor: consecutive partitions of each topic, in the order of the members.

As in Kafka's RangeAssignor, static members come first, sorted by instance id; then the others,
sorted by member id. Topics with as many partitions and the same members are divided in the same
way, so that one member gets equal keys of such topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.assignors.assignor_input import STEP
from barnabas.protocol.java_collections import string_order

if TYPE_CHECKING:
    from barnabas.coordinator.group.assignment import Target
    from barnabas.coordinator.group.assignors.assignor_input import Assigning, AssignorInput


def assign_ranges(given: AssignorInput) -> Assigning:
    """Return the target assignment of each member. Yields."""
    order = sorted(
        given.members,
        key=lambda member_id: _sort_key(member_id, given.members[member_id].instance_id),
    )
    found: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in order}
    yield
    subscribers: dict[bytes, list[str]] = {}
    done = 0
    for member_id in order:
        topic_ids = given.members[member_id].subscribed_topic_ids
        for topic_id in topic_ids:
            subscribers.setdefault(topic_id, []).append(member_id)
        done += 1 + len(topic_ids)
        if done >= STEP:
            done = 0
            yield
    for topic_id, members in subscribers.items():
        quota, extra = divmod(given.partition_counts[topic_id], len(members))
        first = 0
        for position, member_id in enumerate(members):
            end = first + quota + (1 if position < extra else 0)
            if end > first:
                found[member_id][topic_id] = frozenset(range(first, end))
            first = end
            if position % STEP == STEP - 1:
                yield
    targets: dict[str, Target] = dict(found)
    return targets


def _sort_key(member_id: str, instance_id: str | None) -> tuple[bool, bytes]:
    return (instance_id is None, string_order(member_id if instance_id is None else instance_id))
