"""Copies the closed segments of one led partition to the remote tier (Kafka's RLMCopyTask).

A segment is copied when all of its records are committed and decided, and `remote.copy.lag.*`
allows it. The task looks for one after each roll, when the last stable offset reaches the end of a
closed segment, after each copy, and in each sweep. It copies one segment at a time:

| state             | what it waits for                                              |
|-------------------|----------------------------------------------------------------|
| AWAITING_METADATA | the earlier events of the partition                            |
| IDLE              | a segment to copy                                              |
| WAITING           | a slot: threads, quota, the health of the store                |
| STARTING          | the event COPY_SEGMENT_STARTED, until it was read again        |
| COPYING           | the store                                                      |
| FINISHING         | the event COPY_SEGMENT_FINISHED, until it was read again       |
| BACKING_OFF       | a delay after a failure                                        |
| STOPPED           | the next leadership: the store returned too much metadata      |
| ABANDONED         | nothing: another broker leads, or the partition is gone        |

Kafka does not fence leaders: a deposed one may finish a copy. Here the leader checks its epoch
before the second event. Afterwards it looks whether the event was applied: the new leader may have
deleted the segment first. Then, and when a copy ends after the leadership, this broker deletes the
objects that it stored. A copy that was started and never finished is removed by the expiration.
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.remote.copy_candidates import CopyCandidates
from barnabas.replication.remote.copy_causes import CopyCause, WaitingSegment
from barnabas.replication.remote.store_health import failure_kind
from barnabas.storage.errors import StorageError
from barnabas.storage.remote.remote_storage import RemoteSegment, SegmentState
from barnabas.storage.remote.segment_states import started_record
from barnabas.waiting.state_machine import StateMachine

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.partition.partition_registry import HighWatermarkListeners
    from barnabas.replication.remote.copy_slots import CopySlots
    from barnabas.replication.remote.segment_deletions import SegmentDeletions
    from barnabas.replication.remote.store_health import StoreHealth
    from barnabas.replication.remote.tier_dependencies import Leadership, TierDependencies
    from barnabas.storage.files.leader_epoch_cache import EpochEntry
    from barnabas.storage.log.log import Log
    from barnabas.storage.log.segment_copy import CopyableSegment
    from barnabas.storage.remote.remote_storage import SegmentFiles
    from barnabas.storage.remote.segment_states import Applied
    from barnabas.storage.topic_partition import TopicPartition
    from barnabas.waiting.timing_wheel import WheelEntry

_log = logging.getLogger(__name__)

_STARTED = SegmentState.COPY_SEGMENT_STARTED
_FINISHED = SegmentState.COPY_SEGMENT_FINISHED


class CopyState(Enum):
    """See the table above."""

    AWAITING_METADATA = auto()
    IDLE = auto()
    WAITING = auto()
    STARTING = auto()
    COPYING = auto()
    FINISHING = auto()
    BACKING_OFF = auto()
    STOPPED = auto()
    ABANDONED = auto()


class CopyEvent(Enum):
    """What changes the state."""

    METADATA_READY = auto()
    SEGMENT_FOUND = auto()
    # The segment is not to be copied any more.
    SEGMENT_GONE = auto()
    ADMITTED = auto()
    START_WRITTEN = auto()
    COPIED = auto()
    # The second event was read again, whether it was applied or another one came first.
    END_WRITTEN = auto()
    FAILED = auto()
    RETRY = auto()
    # The objects are stored, and only the second event is missing.
    RETRY_END = auto()
    # The store returned more metadata than is allowed.
    METADATA_TOO_LARGE = auto()
    RESIGNED = auto()


_S, _E = CopyState, CopyEvent
TABLE = {
    _S.AWAITING_METADATA: {_E.METADATA_READY: _S.IDLE, _E.RESIGNED: _S.ABANDONED},
    _S.IDLE: {_E.SEGMENT_FOUND: _S.WAITING, _E.RESIGNED: _S.ABANDONED},
    _S.WAITING: {
        _E.ADMITTED: _S.STARTING,
        _E.SEGMENT_GONE: _S.IDLE,
        _E.FAILED: _S.BACKING_OFF,
        _E.RESIGNED: _S.ABANDONED,
    },
    _S.STARTING: {
        _E.START_WRITTEN: _S.COPYING,
        _E.FAILED: _S.BACKING_OFF,
        _E.RESIGNED: _S.ABANDONED,
    },
    _S.COPYING: {
        _E.COPIED: _S.FINISHING,
        _E.FAILED: _S.BACKING_OFF,
        _E.METADATA_TOO_LARGE: _S.STOPPED,
        _E.RESIGNED: _S.ABANDONED,
    },
    _S.FINISHING: {
        _E.END_WRITTEN: _S.IDLE,
        _E.FAILED: _S.BACKING_OFF,
        _E.RESIGNED: _S.ABANDONED,
    },
    _S.BACKING_OFF: {
        _E.RETRY: _S.IDLE,
        _E.RETRY_END: _S.FINISHING,
        _E.RESIGNED: _S.ABANDONED,
    },
    _S.STOPPED: {_E.RESIGNED: _S.ABANDONED},
    _S.ABANDONED: {},
}


class CopyDependencies(msgspec.Struct, frozen=True):
    """What all copy tasks of a broker share, besides the parts of the tier."""

    slots: CopySlots
    deletions: SegmentDeletions
    health: StoreHealth
    # Calls back when a high watermark moves. One listener for each partition.
    high_watermarks: HighWatermarkListeners
    # Called after each copy, to check what was stored.
    on_copied: Callable[[TopicPartition], None]


class CopyTask:
    """The copies of one partition during one leadership."""

    __slots__ = (
        "_candidates",
        "_cause",
        "_dependencies",
        "_failures",
        "_has_slot",
        "_leadership",
        "_machine",
        "_retry",
        "_segment",
        "_tier",
    )

    def __init__(
        self, leadership: Leadership, tier: TierDependencies, dependencies: CopyDependencies
    ) -> None:
        self._leadership = leadership
        self._tier = tier
        self._dependencies = dependencies
        self._machine = StateMachine(
            f"copies of {leadership.where.topic_partition}", _S.AWAITING_METADATA, TABLE
        )
        # The segment that is being copied. After a failed first event it stays, so that the next
        # try has the same id; after a failed second event too. None otherwise.
        self._segment: RemoteSegment | None = None
        # Whether one of `CopySlots` is taken.
        self._has_slot = False
        # Failures since the last success, and the timer of the next try.
        self._failures = 0
        self._retry: WheelEntry | None = None
        self._candidates = CopyCandidates(
            leadership,
            tier,
            dependencies.deletions,
            dependencies.high_watermarks,
            self.check,
        )
        # The kind of the latest failure. None after a success.
        self._cause: CopyCause | None = None

    def waiting_segment(self) -> WaitingSegment | None:
        """Return the oldest closed segment without a copy, as of the last sweep, and its cause."""
        oldest = self._candidates.oldest
        if oldest is None:
            return None
        cause = self._why_waiting()
        if cause is None:
            return None
        return WaitingSegment(
            self._leadership.where.topic_partition, oldest.base_offset, oldest.since_ms, cause
        )

    def _why_waiting(self) -> CopyCause | None:
        """Return what the oldest segment waits for; None if it is copied by now."""
        state = self._machine.state
        if state is _S.AWAITING_METADATA:
            return CopyCause.METADATA
        if state is _S.STOPPED:
            return CopyCause.METADATA_TOO_LARGE
        if state is _S.WAITING:
            return self._dependencies.slots.pause or self._cause or CopyCause.THREADS
        if state is _S.IDLE:
            found = self._candidates.why_waiting()
            return self._cause or found if found is CopyCause.COPYING else found
        return self._cause or CopyCause.COPYING

    def is_copying(self, segment_id: bytes) -> bool:
        """Return whether a segment is being copied, from its first event to its second one."""
        return self._segment is not None and self._segment.id == segment_id

    def start(self) -> None:
        """Begin as soon as the earlier events of the partition are known."""
        self._tier.metadata.on_ready(self._leadership.where, self._on_ready)

    def check(self) -> None:
        """Look for a segment to copy, unless one is being copied or another broker leads."""
        if self._machine.state is not _S.IDLE or not self._leadership.holds:
            return
        if self._next_candidate() is None:
            return
        self._on(_E.SEGMENT_FOUND)
        self._dependencies.slots.request(self)

    def update_lag(self) -> None:
        """Update the lag in the metrics."""
        self._candidates.update_lag()

    def on_lost(self, segment: RemoteSegment) -> None:
        """Copy a segment again whose objects the store has lost.

        The next sweep begins with it: a store that loses everything must not keep the broker busy.
        """
        self._candidates.add_lost(segment)

    def resign(self) -> None:
        """Stop for good: another broker leads, or the partition is gone or not copied any more."""
        if self._machine.state is _S.ABANDONED:
            return
        is_copying = self._machine.state is _S.COPYING
        self._on(_E.RESIGNED)
        self._candidates.close()
        self._dependencies.slots.withdraw(self)
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if not is_copying:
            # A running copy releases its slot when it ends.
            self._release()

    def _on_ready(self) -> None:
        if self._machine.state is not _S.AWAITING_METADATA or not self._leadership.holds:
            return
        self._on(_E.METADATA_READY)
        self.check()

    def _next_candidate(self) -> CopyableSegment | None:
        """Return the next segment to copy now; None if there is none, or the log has failed."""
        try:
            return self._candidates.next()
        except StorageError:
            # The log has counted and logged it.
            self._cause = CopyCause.LOG
            return None

    # Copying.

    def on_admitted(self) -> None:
        """Begin with the first event: a slot is free."""
        self._has_slot = True
        candidate = self._next_candidate() if self._leadership.holds else None
        if candidate is None:
            self._on(_E.SEGMENT_GONE)
            self._release()
            return
        try:
            files = self._log.open_for_copy(candidate.base_offset)
        except StorageError as error:
            self._fail(
                CopyCause.LOG, f"the segment at {candidate.base_offset} cannot be read: {error}"
            )
            return
        epochs = self._log.leader_epochs.entries_in(
            candidate.base_offset, candidate.next_base_offset
        )
        if files is None or not epochs:
            self._fail(
                CopyCause.LOG,
                f"the segment at {candidate.base_offset} has no leader epochs"
                if files is not None
                else f"the segment at {candidate.base_offset} is gone",
            )
            return
        self._segment = segment = self._described(candidate, files, epochs)
        self._dependencies.slots.quota.record(segment.size)
        self._on(_E.ADMITTED)
        self._tier.metadata.publish(
            self._leadership.where,
            started_record(segment),
            partial(self._on_start_written, segment, files),
        )

    def _described(
        self, candidate: CopyableSegment, files: SegmentFiles, epochs: list[EpochEntry]
    ) -> RemoteSegment:
        """Return the segment of the next copy. A repeated first event has the same id."""
        tier, where, last = self._tier, self._leadership.where, candidate.next_base_offset - 1
        failed = self._segment
        is_same = failed is not None and (failed.start_offset, failed.end_offset) == (
            candidate.base_offset,
            last,
        )
        return RemoteSegment(
            topic=where.topic,
            topic_id=where.topic_id,
            partition=where.partition,
            id=failed.id if failed is not None and is_same else tier.rng.uuid(),
            start_offset=candidate.base_offset,
            end_offset=last,
            size=files.log_size,
            max_timestamp=candidate.max_timestamp,
            leader_epochs=tuple((each.epoch, each.start_offset) for each in epochs),
            has_transactions=bool(files.transaction_index),
            broker_id=tier.node_id,
            event_ms=tier.clock.wall_ms(),
            state=_STARTED,
        )

    def _on_start_written(
        self, segment: RemoteSegment, files: SegmentFiles, result: Applied | ErrorCode
    ) -> None:
        if self._machine.state is not _S.STARTING:
            return
        if isinstance(result, ErrorCode) or not result.was_allowed:
            if not isinstance(result, ErrorCode):
                # Another broker has deleted the segment of an earlier try.
                self._segment = None
            self._fail(
                CopyCause.METADATA_WRITE,
                _problem("the start of a copy could not be written", result),
            )
            return
        if not self._leadership.holds:
            # Metadata comes soon, with which the task resigns. The next leader removes the segment.
            self._fail(CopyCause.METADATA, "another broker leads")
            return
        self._on(_E.START_WRITTEN)
        self._tier.metrics.topics[segment.topic].copy_requests += 1
        ticket = self._tier.copies.submit(
            partial(self._tier.storage.copy_segment, segment, files),
            partial(self._on_copied, segment),
        )
        if ticket is None:
            self._segment = None
            self._fail(CopyCause.THREADS, "the queue of copies is full")

    def _on_copied(
        self, segment: RemoteSegment, custom: bytes | None, error: BaseException | None
    ) -> None:
        if self._machine.state is _S.ABANDONED:
            self._release()
            self._delete_objects(segment)
            return
        if error is not None or custom is None:
            self._on_copy_failed(segment, error)
            return
        limit = self._tier.config.remote_log_metadata_custom_metadata_max_bytes
        segment = replace(segment, custom=custom, state=_FINISHED)
        if len(custom) > limit:
            self._on_too_much_metadata(segment, limit)
        elif self._leadership.holds:
            self._segment = segment
            self._on(_E.COPIED)
            self._release()
            self._write_end(segment)
        else:
            # Metadata comes soon, with which the task resigns.
            self._segment = None
            self._delete_objects(segment)
            self._fail(CopyCause.METADATA, "another broker leads")

    def _on_copy_failed(self, segment: RemoteSegment, error: BaseException | None) -> None:
        assert error is not None, f"{segment.topic}: the store returned no metadata and no error"
        where = self._leadership.where
        self._dependencies.health.on_failure(f"copy of {where.topic_partition}", error)
        self._segment = None
        # Parts of it may be stored.
        self._dependencies.deletions.delete(where, segment, self._may_delete)
        self._fail(failure_kind(error), str(error) or type(error).__name__)

    def _on_too_much_metadata(self, segment: RemoteSegment, limit: int) -> None:
        self._tier.metrics.topics[segment.topic].copy_errors += 1
        assert segment.custom is not None, segment
        _log.error(
            "Copies stop until the next leader, because the store returned too much metadata: "
            "partition=%s bytes=%d fix=raise remote.log.metadata.custom.metadata.max.bytes=%d",
            self._leadership.where.topic_partition,
            len(segment.custom),
            limit,
        )
        self._segment = None
        self._on(_E.METADATA_TOO_LARGE)
        self._release()
        self._dependencies.deletions.delete(self._leadership.where, segment, self._may_delete)

    def _write_end(self, segment: RemoteSegment) -> None:
        self._tier.publish_state(
            self._leadership.where,
            segment,
            _FINISHED,
            partial(self._on_end_written, segment),
        )

    def _on_end_written(self, segment: RemoteSegment, result: Applied | ErrorCode) -> None:
        if isinstance(result, ErrorCode):
            if self._machine.state is _S.FINISHING:
                # The event may have been written all the same, so the objects stay.
                self._fail(
                    CopyCause.METADATA_WRITE,
                    _problem("the end of a copy could not be written", result),
                )
            return
        known = result.segment
        is_stored = known is not None and known.state is _FINISHED
        if not is_stored:
            # Another leader was first, and has begun to delete the segment.
            self._delete_objects(segment)
        if self._machine.state is not _S.FINISHING:
            return
        self._segment = None
        self._on(_E.END_WRITTEN)
        if is_stored:
            self._on_stored(segment)
        self.check()

    def _on_stored(self, segment: RemoteSegment) -> None:
        self._failures = 0
        self._cause = None
        self._tier.metrics.topics[segment.topic].copy_bytes += segment.size
        log = self._log
        if segment.end_offset < log.log_end_offset:
            log.raise_highest_remote_offset(segment.end_offset)
        _log.debug(
            "Segment copied: partition=%s base_offset=%d size=%d",
            self._leadership.where.topic_partition,
            segment.start_offset,
            segment.size,
        )
        self._dependencies.on_copied(self._leadership.where.topic_partition)

    # Failing.

    def _fail(self, cause: CopyCause, error: str) -> None:
        """Try again after a delay that doubles with each failure."""
        tier, config = self._tier, self._tier.config
        tier.metrics.topics[self._leadership.where.topic].copy_errors += 1
        self._cause = cause
        self._on(_E.FAILED)
        self._release()
        delay_ms = min(
            config.remote_log_manager_task_retry_backoff_ms * 2.0 ** min(self._failures, 20),
            config.remote_log_manager_task_retry_backoff_max_ms,
        )
        jitter = config.remote_log_manager_task_retry_jitter * (2.0 * tier.rng.random() - 1.0)
        self._failures += 1
        self._retry = tier.wheel.add(delay_ms * (1.0 + jitter), self._try_again)
        _log.debug(
            "Copy failed: partition=%s error=%s retry_ms=%d",
            self._leadership.where.topic_partition,
            error,
            delay_ms,
        )

    def _try_again(self) -> None:
        self._retry = None
        segment = self._segment
        if segment is None or segment.state is not _FINISHED or not self._leadership.holds:
            self._on(_E.RETRY)
            self.check()
        else:
            self._on(_E.RETRY_END)
            self._write_end(segment)

    def _delete_objects(self, segment: RemoteSegment) -> None:
        """Delete objects of a segment that no event will finish."""

        def on_deleted(_: None, error: BaseException | None) -> None:
            if error is not None:
                action = f"deletion of an unfinished copy of {segment.topic}"
                self._dependencies.health.on_failure(action, error)

        self._tier.deletes.submit(partial(self._tier.storage.delete_segment, segment), on_deleted)

    # Small things.

    @property
    def _log(self) -> Log:
        # A move to another directory replaces it.
        return self._leadership.partition.log

    def _may_delete(self) -> bool:
        return self._leadership.holds

    def _release(self) -> None:
        if self._has_slot:
            self._has_slot = False
            self._dependencies.slots.release()

    def _on(self, event: CopyEvent) -> None:
        self._machine.on(event)


def _problem(what: str, result: Applied | ErrorCode) -> str:
    return f"{what}: {result.name if isinstance(result, ErrorCode) else 'it is deleted'}"
