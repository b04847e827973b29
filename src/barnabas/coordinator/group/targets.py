"""Computes target assignments of large groups in slices, between other requests.

The assignment of a small group is computed within the heartbeat that needs it, as in Kafka. For a
large group this would hold the event loop for too long. Then the heartbeat starts a computation,
and its response has the current target. Later heartbeats distribute the new one.

A computation works on a copy of the group. When it ends, the group may have another epoch already.
The result is written with the epoch of the copy, so that a group that changes all the time gets
assignments as well. The next heartbeat sees the newer epoch and starts the next computation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import msgspec

from barnabas.coordinator.group.group_base import GroupMember
from barnabas.coordinator.group.replayed_group import ReplayedGroup
from barnabas.coordinator.group.topics import NOTHING, Target
from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
from barnabas.waiting.steps import SHORT_SLICE_MS, Unfinished, run_slice

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Mapping

    from barnabas.coordinator.group.group_map import GroupsOfKind
    from barnabas.coordinator.group.topics import TopicsView
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.coordinator.runtime.shard import ShardTimers
    from barnabas.runtime.clock import Clock

    # Returns the new targets of the members of a copy, by member id. Yields.
    Assign: TypeAlias = "Callable[[GroupCopy[G, M, T]], Generator[None, None, Mapping[str, T]]]"
    _Computation: TypeAlias = "Generator[None, None, _Computed[G, M, T] | None]"


# An assignor in progress: it yields after each step, and returns the target of each member. A step
# takes at most some tenths of a millisecond.
Assigning: TypeAlias = "Generator[None, None, dict[str, Target]]"

# Members or partitions that an assignor handles in one step.
STEP = 64


class MemberInput(msgspec.Struct, frozen=True):
    """One member, as an assignor sees it."""

    # Ids of existing topics only.
    subscribed_topic_ids: frozenset[bytes]
    # The member's current target assignment.
    target: Target = NOTHING
    instance_id: str | None = None


class AssignorInput(msgspec.Struct, frozen=True):
    """All members by id, and the number of partitions of all subscribed topics by topic id."""

    members: Mapping[str, MemberInput]
    partition_counts: Mapping[bytes, int]
    # Whether all members have the same subscription. Subscriptions that differ only by topics that
    # do not exist are different, as in Kafka.
    is_homogeneous: bool
    # The partitions that may be assigned, by topic id; None if all may be. For share groups.
    assignable: Mapping[bytes, frozenset[int]] | None = None


W = TypeVar("W")


class GroupSlices(Generic[W]):
    """Work of one sort for the groups of a shard. At most one piece of work per group runs."""

    __slots__ = ("_clock", "_name", "_on_done", "_running", "_timers")

    def __init__(
        self,
        name: str,
        timers: ShardTimers,
        clock: Clock,
        on_done: Callable[[str, W], CoordinatorResult[None]],
    ) -> None:
        """Create it without work.

        Args:
            name: the name of its timers.
            timers: run the slices.
            clock: measures the slices.
            on_done: returns the records of the result. Arguments: the group id, the result.
        """
        self._name = name
        self._timers = timers
        self._clock = clock
        self._on_done = on_done
        # Groups with unfinished work.
        self._running: set[str] = set()

    def is_running(self, group_id: str) -> bool:
        """Whether work for the group is unfinished."""
        return group_id in self._running

    def start(self, group_id: str, steps: Generator[None, None, W]) -> None:
        """Do the work from the next turn on, after the records of this turn are replayed."""
        self._running.add(group_id)
        self._timers.schedule((self._name, group_id), 0, lambda: self._slice(group_id, steps))

    def _slice(self, group_id: str, steps: Generator[None, None, W]) -> CoordinatorResult[None]:
        if group_id not in self._running:
            # The timer retries a slice that failed. The next heartbeat starts the work again.
            return CoordinatorResult(None)
        self._running.discard(group_id)
        result = run_slice(steps, self._clock, SHORT_SLICE_MS)
        if isinstance(result, Unfinished):
            self.start(group_id, steps)
            return CoordinatorResult(None)
        return self._on_done(group_id, result)


# Partitions that cost as much time as one member.
_MEMBER_WEIGHT = 10
# Records that are encoded in one step.
_RECORDS_PER_STEP = 16


G = TypeVar("G", bound=ReplayedGroup[Any, Any])
M = TypeVar("M", bound=GroupMember)
T = TypeVar("T")


class GroupCopy(msgspec.Struct, Generic[G, M, T], frozen=True):
    """The state of a group from which its targets are computed."""

    group: G
    # The group epoch, which the result gets.
    epoch: int
    members: Mapping[str, M]
    # The current targets by member id.
    known: Mapping[str, T]


class _Computed(msgspec.Struct, Generic[G, M, T], frozen=True):
    """A finished computation."""

    before: GroupCopy[G, M, T]
    targets: Mapping[str, T]
    # The records of the targets that are new or have changed, by member id.
    records: Mapping[str, CoordinatorRecord]


class SlicedTargets(Generic[G, M, T]):
    """The computations of the groups of one type in a shard; at most one per group runs."""

    __slots__ = ("_clock", "_epoch_record", "_groups", "_slices", "_target_record")

    def __init__(
        self,
        groups: GroupsOfKind[G],
        timers: ShardTimers,
        clock: Clock,
        target_record: Callable[[str, str, T], CoordinatorRecord],
        epoch_record: Callable[[str, int, int], CoordinatorRecord],
    ) -> None:
        """Create the engine.

        Args:
            groups: the groups.
            timers: run the slices.
            clock: measures the slices.
            target_record: returns the record of a target. Arguments: group id, member id, target.
            epoch_record: returns the record of the epoch of all targets. Arguments: group id,
                epoch, wall clock in ms.
        """
        self._groups = groups
        self._clock = clock
        self._target_record = target_record
        self._epoch_record = epoch_record
        self._slices: GroupSlices[_Computed[G, M, T] | None] = GroupSlices(
            f"{groups.kind}-targets", timers, clock, self._result
        )

    def must_wait(self, group: G, interval_ms: int) -> bool:
        """Whether no computation may start now: one is running, or the last one is too recent."""
        return self.is_too_early(group, interval_ms) or self.is_running(group.group_id)

    def is_too_early(self, group: G, interval_ms: int) -> bool:
        """Whether the last computation of the targets is more recent than the interval."""
        timestamp = group.assignment_timestamp
        return bool(timestamp and interval_ms) and self._clock.wall_ms() < timestamp + interval_ms

    def is_running(self, group_id: str) -> bool:
        """Whether a computation for the group is running."""
        return self._slices.is_running(group_id)

    def start(self, group_id: str, assign: Assign[G, M, T]) -> None:
        """Compute the target assignment after the records of the current heartbeat are replayed."""
        self._slices.start(group_id, self._compute(group_id, assign))

    def records_of(
        self, group_id: str, epoch: int, changed: Mapping[str, T]
    ) -> list[CoordinatorRecord]:
        """Return the records of an assignment that was computed now.

        Args:
            group_id: the group.
            epoch: the group epoch of the assignment.
            changed: the targets that are new or have changed, by member id.
        """
        records = [self._target_record(group_id, *each) for each in changed.items()]
        records.append(self._epoch_record(group_id, epoch, self._clock.wall_ms()))
        return records

    def _compute(self, group_id: str, assign: Assign[G, M, T]) -> _Computation[G, M, T]:
        """Compute the targets, and encode their records. Yields."""
        group = self._groups.find(group_id)
        if group is None:
            # The records of the heartbeat were not written.
            return None
        before: GroupCopy[G, M, T] = GroupCopy(
            group, group.group_epoch, dict(group.members), dict(group.targets)
        )
        targets = yield from assign(before)
        changed = differing(targets, before.known)
        yield
        records: dict[str, CoordinatorRecord] = {}
        for position, (member_id, target) in enumerate(changed.items()):
            records[member_id] = self._target_record(group_id, member_id, target)
            if position % _RECORDS_PER_STEP == _RECORDS_PER_STEP - 1:
                yield
        return _Computed(before, targets, records)

    def _result(
        self, group_id: str, computed: _Computed[G, M, T] | None
    ) -> CoordinatorResult[None]:
        """Return the records for the members that the group still has."""
        if computed is None:
            return CoordinatorResult(None)
        group, before = self._groups.find(group_id), computed.before
        if group is not before.group or group.assignment_epoch >= before.epoch:
            # The group was removed, or it became empty meanwhile.
            return CoordinatorResult(None)
        records: list[CoordinatorRecord] = []
        targets: dict[str, T] = {}
        for member_id, target in computed.targets.items():
            successor = self._successor(group, member_id, before)
            if successor is None:
                continue
            if successor == member_id and group.targets.get(successor) is before.known.get(
                member_id
            ):
                record = computed.records.get(member_id)
            else:
                # The member has left and joined again, or another member has replaced it.
                record = self._target_record(group_id, successor, target)
            if record is not None:
                records.append(record)
                targets[successor] = target
        now_ms = self._clock.wall_ms()
        records.append(self._epoch_record(group_id, before.epoch, now_ms))

        def apply() -> None:
            group.set_targets(before.epoch, now_ms, targets)

        return CoordinatorResult(None, records, apply=apply)

    def _successor(self, group: G, member_id: str, before: GroupCopy[G, M, T]) -> str | None:
        """Return the id of the member now; None if it has left.

        Another member may have replaced a static member. That does not raise the group epoch.
        """
        if member_id in group.members:
            return member_id
        successor: M | None = group.static_member(before.members[member_id].instance_id)
        return None if successor is None else successor.member_id


def is_large(
    member_count: int, names: Callable[[], Collection[str]], topics: TopicsView, limit: int
) -> bool:
    """Whether the targets of members that share partitions must be computed in slices.

    Args:
        member_count: the number of members.
        names: returns the subscribed topics. Called only if the members are few.
        topics: the topics of the cluster.
        limit: of the number of partitions, and of the number of members with their weight.
    """
    weight = member_count * _MEMBER_WEIGHT
    if weight > limit:
        return True
    found = names()
    if weight + len(found) > limit:
        return True
    return weight + sum(map(topics.partition_count, found)) > limit


def differing(found: Mapping[str, T], known: Mapping[str, T]) -> dict[str, T]:
    """Return the targets that are new or have changed."""
    return {
        member_id: target
        for member_id, target in found.items()
        if member_id not in known or (known[member_id] is not target and known[member_id] != target)
    }
