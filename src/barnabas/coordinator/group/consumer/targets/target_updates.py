"""Computes the target assignments of large consumer groups in slices (KIP-848)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.coordinator.group.consumer.consumer_records import (
    target_epoch_record,
    target_record,
)
from barnabas.coordinator.group.consumer.targets.target_assignment import TargetInput
from barnabas.coordinator.group.targets import (
    SlicedTargets,
    TargetRecords,
    is_large,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    from barnabas.coordinator.group.assignment import Target
    from barnabas.coordinator.group.consumer.assignors.assignor_input import Assigning
    from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
    from barnabas.coordinator.group.consumer.consumer_shard import ConsumerShard
    from barnabas.coordinator.group.consumer.members.consumer_member import ConsumerMember
    from barnabas.coordinator.group.targets import GroupCopy

    _Copy: TypeAlias = GroupCopy[ConsumerGroup, ConsumerMember, Target]

# A heartbeat computes the assignment of a group below this limit at once (see `is_large`). That
# takes a few milliseconds.
AT_ONCE_MAX = 1_000


class TargetUpdates:
    """The computations of the groups of one shard; at most one per group runs."""

    __slots__ = ("_assignor_of", "_shard", "_sliced")

    def __init__(self, shard: ConsumerShard, assignor_of: Callable[[ConsumerGroup], str]) -> None:
        self._shard = shard
        # Returns the name of a group's assignor.
        self._assignor_of = assignor_of
        self._sliced: SlicedTargets[ConsumerGroup, ConsumerMember, Target] = SlicedTargets(
            "consumer-targets",
            shard.groups,
            shard.timers,
            shard.clock,
            TargetRecords(target_record, target_epoch_record, _replacement),
        )

    def is_large(self, group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember) -> bool:
        """Whether the target assignment must be computed in slices.

        Args:
            group: the group.
            before: a member that changes or joins.
            after: the same member after the change.
        """
        names = partial(group.subscribed_names_with, before, after)
        return is_large(1 + len(group.members), names, self._shard.topics, AT_ONCE_MAX)

    def is_running(self, group_id: str) -> bool:
        """Whether a computation for the group is running."""
        return self._sliced.is_running(group_id)

    def start(self, group_id: str) -> None:
        """Compute the target assignment after the records of the current heartbeat are replayed."""
        self._sliced.start(group_id, self._assign)

    def _assign(self, copy: _Copy) -> Assigning:
        group, assignor = copy.group, self._assignor_of(copy.group)
        is_homogeneous = group.is_homogeneous_with(None, None)
        before = TargetInput(group, copy.members, copy.known, is_homogeneous)
        yield
        return (yield from before.assign(assignor, self._shard.topics))


def _replacement(group: Any, member: ConsumerMember) -> str | None:
    found: str | None = group.static_members.get(member.instance_id)
    return found
