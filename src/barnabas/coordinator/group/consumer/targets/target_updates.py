"""Computes the target assignments of large groups in slices, between other requests (KIP-848).

The assignment of a small group is computed within the heartbeat that needs it, as in Kafka. For a
large group this would hold the event loop for too long. Then the heartbeat starts a computation,
and its response has the current target. Later heartbeats distribute the new one.

A computation works on a copy of the group. When it ends, the group may have another epoch already.
The result is written with the epoch of the copy, so that a group that changes all the time gets
assignments as well. The next heartbeat sees the newer epoch and starts the next computation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.consumer.consumer_records import (
    target_epoch_record,
    target_record,
)
from barnabas.coordinator.group.consumer.targets.target_assignment import TargetInput, differing
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.waiting.steps import Unfinished, run_slice

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from typing import TypeAlias

    from barnabas.coordinator.group.assignment import Target
    from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
    from barnabas.coordinator.group.consumer.consumer_shard import ConsumerShard
    from barnabas.coordinator.group.consumer.members.consumer_member import ConsumerMember
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord

    _Computation: TypeAlias = "Generator[None, None, _Computed | None]"

# Duration of a slice, in ms.
SLICE_MS = 2
# A heartbeat computes the assignment of a group at once if its number of partitions, and its number
# of members with this weight, are together below the limit. That takes a few milliseconds.
_MEMBER_WEIGHT = 10
AT_ONCE_MAX = 1_000
# Records that are encoded in one step.
_RECORDS_PER_STEP = 16


class _Computed(msgspec.Struct, frozen=True):
    """A finished computation."""

    # The group epoch of the copy.
    epoch: int
    before: TargetInput
    targets: Mapping[str, Target]
    # The records of the targets that are new or have changed, by member id.
    records: Mapping[str, CoordinatorRecord]


class TargetUpdates:
    """The computations of the groups of one shard; at most one per group runs."""

    __slots__ = ("_assignor_of", "_running", "_shard")

    def __init__(self, shard: ConsumerShard, assignor_of: Callable[[ConsumerGroup], str]) -> None:
        self._shard = shard
        # Returns the name of a group's assignor.
        self._assignor_of = assignor_of
        # Groups whose target assignment is being computed.
        self._running: set[str] = set()

    def is_large(self, group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember) -> bool:
        """Whether the target assignment must be computed in slices.

        Args:
            group: the group.
            before: a member that changes or joins.
            after: the same member after the change.
        """
        weight = (1 + len(group.members)) * _MEMBER_WEIGHT
        if weight > AT_ONCE_MAX:
            return True
        names = group.subscribed_names_with(before, after)
        if weight + len(names) > AT_ONCE_MAX:
            return True
        return weight + sum(map(self._shard.topics.partition_count, names)) > AT_ONCE_MAX

    def is_running(self, group_id: str) -> bool:
        """Whether a computation for the group is running."""
        return group_id in self._running

    def start(self, group_id: str) -> None:
        """Compute the target assignment after the records of the current heartbeat are replayed."""
        self._running.add(group_id)
        self._schedule(group_id, self._compute(group_id))

    def _schedule(self, group_id: str, computation: _Computation) -> None:
        self._shard.timers.schedule(
            ("consumer-targets", group_id), 0, lambda: self._slice(group_id, computation)
        )

    def _slice(self, group_id: str, computation: _Computation) -> CoordinatorResult[None]:
        computed = run_slice(computation, self._shard.clock, SLICE_MS)
        if isinstance(computed, Unfinished):
            self._schedule(group_id, computation)
            return CoordinatorResult(None)
        self._running.discard(group_id)
        return self._result(group_id, computed)

    def _compute(self, group_id: str) -> _Computation:
        """Compute the targets, and encode their records. Yields."""
        group = self._shard.groups.find(group_id)
        if group is None:
            # The records of the heartbeat were not written.
            return None
        epoch, assignor = group.group_epoch, self._assignor_of(group)
        before = TargetInput.of(group)
        yield
        targets = yield from before.assign(assignor, self._shard.topics)
        changed = differing(targets, before.known)
        yield
        records: dict[str, CoordinatorRecord] = {}
        for position, (member_id, target) in enumerate(changed.items()):
            records[member_id] = target_record(group_id, member_id, target)
            if position % _RECORDS_PER_STEP == _RECORDS_PER_STEP - 1:
                yield
        return _Computed(epoch, before, targets, records)

    def _result(self, group_id: str, computed: _Computed | None) -> CoordinatorResult[None]:
        """Return the records for the members that the group still has."""
        group = self._shard.groups.find(group_id)
        if computed is None or group is not computed.before.group:
            return CoordinatorResult(None)
        if group.assignment_epoch >= computed.epoch:
            # The group became empty meanwhile.
            return CoordinatorResult(None)
        records: list[CoordinatorRecord] = []
        targets: dict[str, Target] = {}
        for member_id, target in computed.targets.items():
            successor = self._successor(group, member_id, computed)
            if successor is None:
                continue
            known = computed.before.known.get(member_id)
            if successor == member_id and group.targets.get(successor) is known:
                record = computed.records.get(member_id)
            else:
                # The member has left and joined again, or another member has replaced it.
                record = target_record(group_id, successor, target)
            if record is not None:
                records.append(record)
                targets[successor] = target
        now_ms = self._shard.clock.wall_ms()
        records.append(target_epoch_record(group_id, computed.epoch, now_ms))

        def apply() -> None:
            group.set_targets(computed.epoch, now_ms, targets)

        return CoordinatorResult(None, records, apply=apply)

    @staticmethod
    def _successor(group: ConsumerGroup, member_id: str, computed: _Computed) -> str | None:
        """Return the id of the member now; None if it has left.

        Another member may have replaced a static member. That does not raise the group epoch.
        """
        if member_id in group.members:
            return member_id
        instance_id = computed.before.members[member_id].instance_id
        return None if instance_id is None else group.static_members.get(instance_id)
