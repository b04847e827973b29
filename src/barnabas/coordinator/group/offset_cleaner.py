"""Removes expired offsets, offsets of deleted topics, and groups without members and offsets.

Kafka: OffsetMetadataManager.cleanupExpiredOffsets, GroupMetadataManager.maybeDeleteGroup,
onPartitionsDeleted. The work is done in slices, so that the event loop is not blocked and batches
stay within the log's limit.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.classic.classic_group import ClassicGroup, GroupState
from barnabas.coordinator.group.kinds import tombstones_of
from barnabas.coordinator.group.offset_store import offset_tombstone
from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.coordinator.group.classic.rebalance import Written
    from barnabas.coordinator.group.group_base import Group, GroupMetrics
    from barnabas.coordinator.group.group_config import GroupCoordinatorConfig
    from barnabas.coordinator.group.group_map import GroupMap
    from barnabas.coordinator.group.offset_store import CommittedOffset, OffsetStore, PartitionKey
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.coordinator.runtime.shard import ShardTimers
    from barnabas.runtime.clock import Clock

    # Whether the offsets of a partition are removed. Arguments: the partition, its committed offset
    # if any, and its staged offsets, or None if no open transaction has any.
    Test = Callable[[PartitionKey, CommittedOffset | None, list[CommittedOffset] | None], bool]
    # Returns the test for the offsets of a group, or None to keep all of them.
    Rule = Callable[[Group], Test | None]


# Maximum number of offsets checked, and of records created, per turn: some milliseconds.
SLICE_OFFSETS = 1_000

_EXPIRY_KEY = ("expiry",)
_SLICE_KEY = ("cleaning",)


class _Pass(msgspec.Struct):
    """One pass over all groups."""

    rule: Rule
    # Whether the pass removes groups without members and offsets.
    removes_groups: bool
    # Groups that are not yet checked. None before the pass starts.
    left: deque[str] | None = None


class OffsetCleaner:
    """The cleaner of one shard."""

    __slots__ = (
        "_clock",
        "_config",
        "_groups",
        "_is_started",
        "_metrics",
        "_offsets",
        "_passes",
        "_timers",
    )

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        timers: ShardTimers,
        clock: Clock,
        metrics: GroupMetrics,
        groups: GroupMap,
        offsets: OffsetStore,
    ) -> None:
        self._config = config
        self._timers = timers
        self._clock = clock
        self._metrics = metrics
        self._groups = groups
        self._offsets = offsets
        self._is_started = False
        # Pending passes. The first one is in progress.
        self._passes: deque[_Pass] = deque()

    def start(self) -> None:
        """Start periodic expiry and the passes that were requested during loading."""
        self._is_started = True
        self._schedule_expiry()
        if self._passes:
            self._schedule_slice()

    def forget_topics(self, topics: Mapping[str, bytes]) -> None:
        """Remove the offsets of deleted topics (ids by name) in a later turn."""

        def is_gone(
            key: PartitionKey,
            committed: CommittedOffset | None,
            staged: list[CommittedOffset] | None,
        ) -> bool:
            topic_id = topics.get(key[0])
            if topic_id is None:
                return False
            # The tombstone would also remove the offsets of a new topic with the same name.
            values = [*(staged or ()), *(() if committed is None else (committed,))]
            return all(each.topic_id in (ZERO_UUID, topic_id) for each in values)

        self._begin(_Pass(lambda _: is_gone, removes_groups=False))

    def _schedule_expiry(self) -> None:
        interval_ms = self._config.offsets_retention_check_interval_ms
        self._timers.schedule(_EXPIRY_KEY, interval_ms, self._on_expiry_time)

    def _schedule_slice(self) -> None:
        self._timers.schedule(_SLICE_KEY, 0, self._clean_slice)

    def _on_expiry_time(self) -> Written:
        self._schedule_expiry()
        if not any(each.removes_groups for each in self._passes):
            self._begin(_Pass(self._expiry_rule, removes_groups=True))
        return CoordinatorResult(None)

    def _begin(self, cleaning: _Pass) -> None:
        self._passes.append(cleaning)
        if self._is_started:
            self._schedule_slice()

    def _clean_slice(self) -> Written:
        cleaning = self._passes[0]
        if cleaning.left is None:
            cleaning.left = deque(self._groups.ids())
        records: list[CoordinatorRecord] = []
        examined = 0
        while cleaning.left and examined < SLICE_OFFSETS and len(records) < SLICE_OFFSETS:
            group_id = cleaning.left.popleft()
            group = self._groups.find_with_offsets(group_id)
            if group is None:
                continue
            offsets = self._offsets.latest(group_id)
            staged = self._offsets.staged(group_id)
            examined += 1 + len(offsets) + len(staged)
            if not self._clean_group(cleaning, group, records):
                # The tombstones created so far are replayed before the group is checked again.
                cleaning.left.appendleft(group_id)
        if not cleaning.left:
            self._passes.popleft()
        if self._passes:
            self._schedule_slice()
        return CoordinatorResult(None, records, on_appended=self._on_appended)

    def _clean_group(
        self,
        cleaning: _Pass,
        group: Group,
        records: list[CoordinatorRecord],
    ) -> bool:
        """Create the group's tombstones. Return False if the slice has no room for all of them."""
        is_over = cleaning.rule(group)
        offsets = self._offsets.latest(group.group_id)
        staged = self._offsets.staged(group.group_id)
        kept = 0
        if is_over is not None:
            for key in {**offsets, **staged} if staged else offsets:
                if not is_over(key, offsets.get(key), staged.get(key)):
                    kept += 1
                elif len(records) >= SLICE_OFFSETS:
                    return False
                else:
                    records.append(offset_tombstone(group.group_id, *key))
                    if cleaning.removes_groups:
                        self._metrics.offset_expirations += 1
                    else:
                        self._metrics.offset_deletions += 1
        if cleaning.removes_groups and not kept:
            records += _tombstones_if_empty(group)
        return True

    def _on_appended(self, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            # The log rejects writes now. The next expiry repeats the work.
            self._passes.clear()
            self._timers.cancel(_SLICE_KEY)

    def _expiry_rule(self, group: Group) -> Test | None:
        """Return the test for expired offsets of a group in its current state.

        A consumer or streams group and a stable classic group of consumers keep the offsets of
        their subscribed topics. A classic group keeps all offsets while it rebalances, or if its
        subscriptions are unknown. In an empty classic group that had members, the retention time
        starts when the group became empty. Otherwise it starts at the commit of each offset.
        Staged offsets and the offset from before their transaction are kept until it ends.
        """
        now_ms = self._clock.wall_ms()
        retention_ms = self._config.offsets_retention_ms
        since_ms = -1
        if isinstance(group, ClassicGroup):
            if group.is_in(GroupState.EMPTY):
                if group.protocol_type is not None:
                    since_ms = group.state_timestamp
            elif (
                not group.is_in(GroupState.STABLE)
                or not group.is_of_consumers
                or group.subscribed_topics is None
            ):
                return None

        def is_over(
            key: PartitionKey,
            committed: CommittedOffset | None,
            staged: list[CommittedOffset] | None,
        ) -> bool:
            if committed is None or staged is not None or group.is_subscribed_to(key[0]):
                return False
            if committed.expire_timestamp >= 0:
                return now_ms >= committed.expire_timestamp
            begin_ms = since_ms if since_ms >= 0 else committed.commit_timestamp
            return now_ms - begin_ms >= retention_ms

        return is_over


def _tombstones_if_empty(
    group: Group,
) -> list[CoordinatorRecord]:
    """Return the records that remove the group, or none if it has members."""
    if group.has_members or (isinstance(group, ClassicGroup) and group.pending_join_members):
        return []
    return tombstones_of(group)
