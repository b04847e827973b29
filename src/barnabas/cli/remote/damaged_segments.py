"""Segments of a lost topic that cannot be restored: an object of them is missing or damaged.

A deletion begins with the manifest, and a copy ends with it. So a segment with a manifest had all
its objects in the store once. The plan of a partition shows such segments between others as gaps.
Before the first and after the last other segment, only this file finds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.printable import some
from barnabas.cli.remote.stores import objects_of
from barnabas.storage.remote.segment_objects import MANIFEST_SUFFIX, parse_segment_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from barnabas.cli.remote.restore_plan import PartitionPlan, StartOffsets
    from barnabas.storage.remote.remote_storage import RemoteStorage

_MORE = "`barnabas remote verify` shows more"


def damaged_segments(
    storage: RemoteStorage, topic: str, topic_id: bytes, whole: Collection[str]
) -> dict[int, list[int]]:
    """Return the start offsets of the segments that have a manifest and are not whole.

    Args:
        storage: the store.
        topic: the topic.
        topic_id: its id.
        whole: the names of its whole segments.

    Returns:
        The offsets by partition, ascending.

    Raises:
        RemoteStorageError: the store does not answer.
    """
    found: dict[int, list[int]] = {}
    for each in objects_of(storage, topic):
        name = each.name.removesuffix(MANIFEST_SUFFIX)
        segment = parse_segment_name(name)
        if segment is None or segment.topic_id != topic_id or name in whole:
            continue
        found.setdefault(segment.partition, []).append(segment.start_offset)
    return found


def lost_beginnings(
    damaged: Mapping[int, list[int]], plans: Iterable[PartitionPlan], starts: StartOffsets
) -> list[str]:
    """Return the partitions whose first segments are damaged, unless the user has allowed it.

    Args:
        damaged: the result of `damaged_segments`.
        plans: the partitions that can be restored.
        starts: the first offsets that the user demands.

    Returns:
        A sentence for each of these partitions, with what to do.
    """
    first = {each.partition: each.log_start_offset for each in plans}
    problems: list[str] = []
    for partition, offsets in damaged.items():
        if starts.of(partition) is not None:
            continue
        start = first.get(partition)
        if start is None:
            problems.append(
                f"partition {partition}: its segments from offsets {some(offsets)} on are missing "
                f"or damaged, and no other is in the store; {_MORE}. To restore the topic without "
                f"them: --from {partition}:{offsets[0]}"
            )
            continue
        before = [offset for offset in offsets if offset < start]
        if before:
            problems.append(
                f"partition {partition}: its first segments, from offsets {some(before)} on, are "
                f"damaged; {_MORE}. To restore only what comes after them: "
                f"--from {partition}:{start}"
            )
    return problems


def lost_ends(damaged: Mapping[int, list[int]], plans: Iterable[PartitionPlan]) -> list[str]:
    """Return a sentence for each partition whose last segments are damaged.

    Args:
        damaged: the result of `damaged_segments`.
        plans: the partitions that are restored.
    """
    sentences: list[str] = []
    for plan in plans:
        end = plan.log_end_offset
        behind = [offset for offset in damaged.get(plan.partition, ()) if offset >= end]
        if behind:
            sentences.append(
                f"partition {plan.partition}: its last segments, from offsets {some(behind)} on, "
                f"are damaged, so its end is {end}; {_MORE}"
            )
    return sentences
