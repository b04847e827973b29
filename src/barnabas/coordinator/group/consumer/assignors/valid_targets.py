"""The valid part of the current target assignment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.consumer.assignors.assignor_input import STEP

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from barnabas.coordinator.group.assignment import Target
    from barnabas.coordinator.group.consumer.assignors.assignor_input import AssignorInput


def valid_targets(
    given: AssignorInput, order: Sequence[str]
) -> Generator[None, None, tuple[list[Target], dict[bytes, set[int]]]]:
    """Return the targets of the members without topics that they do not subscribe to. Yields.

    Partitions that do not exist and second owners of a partition are left out too. Records of a
    group have neither, but a damaged or foreign log may.

    Args:
        given: the group.
        order: the members.

    Returns:
        The targets in the order of the members, and all partitions in them by topic.
    """
    found: list[Target] = []
    taken: dict[bytes, set[int]] = {topic_id: set() for topic_id in given.partition_counts}
    counts = given.partition_counts
    done = 0
    for member_id in order:
        member = given.members[member_id]
        kept: Target = member.target
        for topic_id, partitions in member.target.items():
            valid = partitions
            if topic_id not in member.subscribed_topic_ids:
                valid = frozenset()
            elif max(partitions) >= counts[topic_id] or not taken[topic_id].isdisjoint(partitions):
                others, count = taken[topic_id], counts[topic_id]
                valid = frozenset(
                    each for each in partitions if each < count and each not in others
                )
            if valid:
                taken[topic_id] |= valid
            if valid is not partitions:
                kept = {each: own for each, own in kept.items() if each != topic_id}
                if valid:
                    kept[topic_id] = valid
        found.append(kept)
        done += 1 + len(kept)
        if done >= STEP:
            done = 0
            yield
    return found, taken
