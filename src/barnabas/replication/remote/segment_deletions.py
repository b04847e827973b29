"""Deletes segments of the remote tier: the event, the objects, and the event that it is done.

Kafka's RemoteLogManager.deleteRemoteLogSegment. A deletion that fails leaves its segment in the
state DELETE_SEGMENT_STARTED, where no read finds it, and the next run of the leader's expiration
deletes it again. Deletions are not urgent, so few of them run at a time.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.storage.remote.remote_storage import SegmentState

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.remote.store_health import StoreHealth
    from barnabas.replication.remote.tier_dependencies import TierDependencies
    from barnabas.storage.remote.remote_storage import RemoteSegment
    from barnabas.storage.remote.segment_states import Applied
    from barnabas.storage.topic_partition import TopicIdPartition

_DELETING = SegmentState.DELETE_SEGMENT_STARTED
# Deletions whose events or objects are in progress at a time.
_RUNNING_MAX = 16


class _Deletion:
    """The deletion of one segment."""

    __slots__ = ("may_go_on", "on_done", "segment", "where")

    def __init__(
        self,
        where: TopicIdPartition,
        segment: RemoteSegment,
        may_go_on: Callable[[], bool],
        on_done: Callable[[bool], None],
    ) -> None:
        self.where = where
        self.segment = segment
        self.may_go_on = may_go_on
        self.on_done = on_done


class SegmentDeletions:
    """The deletions of a broker, in the order in which they were requested."""

    __slots__ = (
        "_health",
        "_ids",
        "_is_closed",
        "_is_starting",
        "_on_deleted",
        "_running",
        "_tier",
        "_waiting",
    )

    def __init__(
        self,
        tier: TierDependencies,
        health: StoreHealth,
        on_deleted: Callable[[bytes], None],
    ) -> None:
        """Create without deletions.

        Args:
            tier: the parts of the tier.
            health: gets failures of the store.
            on_deleted: called with the id of each segment whose objects are deleted, to forget
                what is cached of it.
        """
        self._tier = tier
        self._health = health
        self._on_deleted = on_deleted
        # Bounded by the segments in the metadata.
        self._waiting: deque[_Deletion] = deque()
        # Ids of the segments of all deletions, running ones too.
        self._ids: set[bytes] = set()
        self._running = 0
        self._is_starting = False
        self._is_closed = False

    def is_deleting(self, segment_id: bytes) -> bool:
        """Return whether the deletion of a segment waits or runs."""
        return segment_id in self._ids

    def __len__(self) -> int:
        """Return the number of deletions that wait or run."""
        return len(self._ids)

    def delete(
        self,
        where: TopicIdPartition,
        segment: RemoteSegment,
        may_go_on: Callable[[], bool],
        on_done: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """Delete a segment, unless that is requested already.

        Args:
            where: its partition, whose metadata is assigned to this broker.
            segment: the segment; its current state is looked up.
            may_go_on: asked before each event and before the objects are deleted.
            on_done: called with whether the segment is gone, perhaps before this returns. Not
                called if the deletion was requested before.
        """
        if segment.id in self._ids or self._is_closed:
            return
        self._ids.add(segment.id)
        self._waiting.append(_Deletion(where, segment, may_go_on, on_done))
        self._start_waiting()

    def close(self) -> None:
        """Start no more deletions."""
        self._is_closed = True
        self._waiting.clear()

    def _start_waiting(self) -> None:
        # A deletion may end while it starts: the outer call goes on then.
        if self._is_starting:
            return
        self._is_starting = True
        try:
            while self._waiting and self._running < _RUNNING_MAX:
                self._running += 1
                self._start(self._waiting.popleft())
        finally:
            self._is_starting = False

    def _start(self, deletion: _Deletion) -> None:
        remote = self._tier.metadata.log_of(deletion.where)
        if remote is None or not deletion.may_go_on():
            self._end(deletion, is_gone=False)
            return
        segment = remote.segment(deletion.segment.id)
        if segment is None:
            self._end(deletion, is_gone=True)
            return
        if segment.custom is not None:
            # What the store returned for the copy, which the caller may not know.
            deletion.segment = segment
        if segment.state is _DELETING:
            # An earlier deletion has failed. The event needs no repetition.
            self._delete_objects(deletion)
        else:
            self._tier.publish_state(
                deletion.where,
                deletion.segment,
                _DELETING,
                partial(self._on_started, deletion),
            )

    def _on_started(self, deletion: _Deletion, result: Applied | ErrorCode) -> None:
        if isinstance(result, ErrorCode) or result.segment is None:
            # Without a segment, another broker has deleted it meanwhile.
            self._end(deletion, is_gone=not isinstance(result, ErrorCode))
        else:
            self._delete_objects(deletion)

    def _delete_objects(self, deletion: _Deletion) -> None:
        if not deletion.may_go_on() or self._is_closed:
            self._end(deletion, is_gone=False)
            return
        tier, segment = self._tier, deletion.segment
        tier.metrics.topics[segment.topic].delete_requests += 1
        ticket = tier.deletes.submit(
            partial(tier.storage.delete_segment, segment),
            partial(self._on_objects_deleted, deletion),
        )
        if ticket is None:
            self._end(deletion, is_gone=False)

    def _on_objects_deleted(
        self, deletion: _Deletion, _result: None, error: BaseException | None
    ) -> None:
        segment = deletion.segment
        if error is not None:
            self._tier.metrics.topics[segment.topic].delete_errors += 1
            self._health.on_failure(f"deletion of a segment of {segment.topic}", error)
        else:
            self._on_deleted(segment.id)
        if error is not None or not deletion.may_go_on() or self._is_closed:
            self._end(deletion, is_gone=False)
            return
        self._tier.publish_state(
            deletion.where,
            segment,
            SegmentState.DELETE_SEGMENT_FINISHED,
            partial(self._on_finished, deletion),
        )

    def _on_finished(self, deletion: _Deletion, result: Applied | ErrorCode) -> None:
        self._end(deletion, is_gone=not isinstance(result, ErrorCode))

    def _end(self, deletion: _Deletion, *, is_gone: bool) -> None:
        self._running -= 1
        self._ids.discard(deletion.segment.id)
        deletion.on_done(is_gone)
        self._start_waiting()
