"""What the tasks of the remote tier share: the tier's parts, and the leadership of a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from barnabas.storage.remote.segment_states import update_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.errors import ErrorCode
    from barnabas.protocol.records.remote_log import RemoteLogSegmentMetadataUpdateRecord
    from barnabas.replication.partition.leader_role import LeaderRole
    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.remote.interfaces import RemoteMetadata
    from barnabas.replication.remote.remote_metrics import RemoteMetrics
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.rng import Rng
    from barnabas.runtime.worker_pool import WorkerPool
    from barnabas.storage.remote.config import RemoteLogConfig
    from barnabas.storage.remote.remote_storage import (
        RemoteSegment,
        RemoteStorage,
        SegmentState,
    )
    from barnabas.storage.remote.segment_states import Applied
    from barnabas.storage.topic_partition import TopicIdPartition
    from barnabas.waiting.timing_wheel import TimingWheel


class TierDependencies(msgspec.Struct, frozen=True):
    """The parts of the remote tier that its tasks use. All tasks run on the loop."""

    node_id: int
    config: RemoteLogConfig
    storage: RemoteStorage
    metadata: RemoteMetadata
    metrics: RemoteMetrics
    # Threads for copies; and for deletions and checks of what was stored.
    copies: WorkerPool
    deletes: WorkerPool
    clock: Clock
    # Its wall time does not jump forward: records expire by it.
    trusted_clock: Clock
    wheel: TimingWheel
    rng: Rng

    def publish_state(
        self,
        where: TopicIdPartition,
        segment: RemoteSegment,
        state: SegmentState,
        on_done: Callable[[Applied | ErrorCode], None],
    ) -> None:
        """Write the event that a segment is in another state."""
        self.metadata.publish(where, self.state_event(segment, state), on_done)

    def state_event(
        self, segment: RemoteSegment, state: SegmentState
    ) -> RemoteLogSegmentMetadataUpdateRecord:
        """Return the event that a segment is in another state, from this broker, now."""
        return update_record(
            replace(segment, state=state, broker_id=self.node_id, event_ms=self.clock.wall_ms())
        )


class Leadership:
    """This broker's leadership of a tiered partition in one leader epoch.

    The tasks of a leader check it in the turn in which they write an event, raise an offset or
    delete an object. A new leader may be at work from the next turn on.
    """

    __slots__ = ("_has_ended", "_role", "partition", "where")

    def __init__(self, where: TopicIdPartition, partition: Partition) -> None:
        role = partition.leader
        assert role is not None, f"{where}: this broker does not lead the partition"
        self.where = where
        self.partition = partition
        # The role in this epoch. Each epoch has a new object.
        self._role: LeaderRole = role
        # Whether the partition was deleted or went offline, or is not tiered any more.
        self._has_ended = False

    @property
    def holds(self) -> bool:
        """Whether this broker still leads the partition in the same epoch."""
        return self.partition.leader is self._role and not self._has_ended

    def end(self) -> None:
        """End it, although the partition may keep its role."""
        self._has_ended = True
