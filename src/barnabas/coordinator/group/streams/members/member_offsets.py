"""Offsets of tasks that a member reports (Kafka: MemberTaskOffsets). They are not in records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.refusal import RefusalError
from barnabas.coordinator.group.streams.assignors.task_input import NO_OFFSETS
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.protocol.messages.streams_group_heartbeat import TaskOffset

# Limit of the offsets of one member. Kafka has none. A member has at most some hundred tasks.
OFFSETS_MAX = 10_000


class MemberOffsets(msgspec.Struct, frozen=True):
    """Sums of changelog offsets, and of their end offsets, by subtopology id and partition."""

    offsets: Mapping[str, Mapping[int, int]] = NO_OFFSETS
    end_offsets: Mapping[str, Mapping[int, int]] = NO_OFFSETS

    def updated(
        self, offsets: list[TaskOffset] | None, end_offsets: list[TaskOffset] | None
    ) -> MemberOffsets:
        """Return the offsets with the lists that a request has. Raises RefusalError."""
        return MemberOffsets(
            self.offsets if offsets is None else _by_task(offsets),
            self.end_offsets if end_offsets is None else _by_task(end_offsets),
        )


def _by_task(offsets: list[TaskOffset]) -> Mapping[str, Mapping[int, int]]:
    if len(offsets) > OFFSETS_MAX:
        raise RefusalError(
            ErrorCode.INVALID_REQUEST, f"A member may report at most {OFFSETS_MAX} task offsets."
        )
    found: dict[str, dict[int, int]] = {}
    for each in offsets:
        partitions = found.setdefault(each.subtopology_id, {})
        if each.partition in partitions:
            raise RefusalError(
                ErrorCode.INVALID_REQUEST,
                f"Task offsets contain a duplicate entry for subtopology {each.subtopology_id} "
                f"and partition {each.partition}.",
            )
        partitions[each.partition] = each.offset
    return found
