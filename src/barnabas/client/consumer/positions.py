"""Find and maintain positions: committed offsets, resets and validation after leader changes.

`update` starts the requests that the assigned partitions need. A response changes the state of a
partition only if the partition still waits for that response. Partitions in state FETCHING are
passed to the fetcher; other partitions are not fetched from.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.consumer.errors import LogTruncationError, NoOffsetError
from barnabas.client.consumer.offset_reset import OffsetReset
from barnabas.client.consumer.position import PartitionPosition, PositionState
from barnabas.client.epoch_ends import EpochEnd, ask_epoch_ends
from barnabas.client.errors import (
    ClientError,
    OffsetOutOfRangeError,
    UnknownTopicError,
    broker_error,
)
from barnabas.client.list_offsets import ListedOffset, OffsetLookup
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.consumer.record_buffer import RecordBuffer
    from barnabas.client.consumer.subscription import Subscription
    from barnabas.client.errors import CorruptRecordsError
    from barnabas.client.fetcher import Fetcher
    from barnabas.client.group.group_offsets import CommittedOffset
    from barnabas.client.retries.retrying import OnDone
    from barnabas.client.topic_partition import TopicPartition

    Committed = dict[TopicPartition, CommittedOffset]
    ReadCommitted = Callable[[list[TopicPartition], OnDone[Committed]], None]

__all__ = ["PositionParts", "Positions"]

_log = logging.getLogger(__name__)
_S = PositionState


class PositionParts(NamedTuple):
    """What is needed to find positions."""

    subscription: Subscription
    fetcher: Fetcher
    buffer: RecordBuffer
    # Fetches the group's committed offsets; None without a group.
    read_committed: ReadCommitted | None
    # Called when a position was found or an error is pending.
    on_change: Callable[[], None]


class Positions:
    """Brings assigned partitions to state FETCHING; validates them after leader changes."""

    def __init__(self, cluster: Cluster, parts: PositionParts, default_reset: OffsetReset) -> None:
        self._cluster = cluster
        self._config = cluster.config
        self._subscription = parts.subscription
        self._fetcher = parts.fetcher
        self._buffer = parts.buffer
        self._read_committed = parts.read_committed
        self._on_change = parts.on_change
        self._default_reset = default_reset
        # Pending error; the next `update` raises and clears it.
        self._error: ClientError | None = None
        # Partitions whose leader has changed since they were last fetched from.
        self._moved: set[TopicPartition] = set()

    # Calls of the consumer

    def update(self) -> None:
        """Start the requests for partitions whose position is missing or not validated.

        Raises:
            ClientError: An earlier request failed, or there is no offset to begin at.
        """
        error, self._error = self._error, None
        if error is not None:
            raise error
        self._note_moved()
        waiting: dict[PositionState, list[TopicPartition]] = {}
        for tp, position in self._subscription.assignment.items():
            if position.state is not _S.FETCHING and not position.busy:
                waiting.setdefault(position.state, []).append(tp)
        if not waiting:
            return
        if _S.INITIALIZING in waiting:
            self._initialize(waiting[_S.INITIALIZING])
        if _S.AWAIT_RESET in waiting:
            self._look_up(waiting[_S.AWAIT_RESET])
        if _S.AWAIT_VALIDATION in waiting:
            self._validate(waiting[_S.AWAIT_VALIDATION])

    def seek(self, tp: TopicPartition, offset: int, epoch: int = -1) -> None:
        """Continue at `offset`; discard fetched records of the partition."""
        position = self._subscription.position(tp)
        position.seek(offset, epoch)
        self._refetch(tp, position)

    def go_back_to(self, corrupt: Iterable[CorruptRecordsError]) -> None:
        """Move positions back to batches that were returned but could not be decoded."""
        for error in corrupt:
            position = self._subscription.assignment.get(error.partition)
            if position is not None and position.has_position and position.offset > error.offset:
                self.seek(error.partition, error.offset)

    def reset(self, tp: TopicPartition, reset: OffsetReset) -> None:
        """Discard the position; continue at the offset that `reset` selects."""
        self._subscription.position(tp).request_reset(reset)
        self._buffer.drop(tp)

    def on_failure(self, tp: TopicPartition, error: ClientError) -> ClientError | None:
        """Handle a failed fetch of a partition; return the error to raise, or None."""
        position = self._subscription.assignment.get(tp)
        if position is None or not position.has_position:
            return None
        if isinstance(error, OffsetOutOfRangeError) and not self._default_reset.is_none:
            if error.position == position.offset:
                self.reset(tp, self._default_reset)
                self._on_change()
                return None
            # The fetcher read ahead to an offset that no longer exists; fetch again from the user's
            # position.
            self._refetch(tp, position)
            return None
        self._refetch(tp, position)
        return error

    def on_leader_changed(self, tp: TopicPartition) -> None:
        """Note a leader change; `update` handles it, since the fetcher calls this while sending."""
        if not self._moved:
            self._cluster.runtime.timer.call_soon(self._update_later)
        self._moved.add(tp)

    def _update_later(self) -> None:
        try:
            self.update()
        except ClientError as error:
            self._fail(error)

    def _note_moved(self) -> None:
        moved, self._moved = self._moved, set()
        for tp in moved:
            position = self._subscription.assignment.get(tp)
            if position is None or position.state is not _S.FETCHING:
                continue
            if position.epoch >= 0:
                position.request_validation()
            self._refetch(tp, position)

    def _refetch(self, tp: TopicPartition, position: PartitionPosition) -> None:
        """Discard fetched records; fetch again from the position once it is valid."""
        self._buffer.drop(tp)
        if position.state is _S.FETCHING:
            self._start_fetching(tp, position)

    def _start_fetching(self, tp: TopicPartition, position: PartitionPosition) -> None:
        info = self._cluster.metadata.partition(tp)
        leader_epoch = -1 if info is None else info.leader_epoch
        self._fetcher.validated(tp, position.offset, position.epoch, leader_epoch)
        if position.is_paused:
            self._buffer.pause(tp)
        self._on_change()

    # Committed offsets

    def _initialize(self, partitions: list[TopicPartition]) -> None:
        if self._read_committed is None:
            self._reset_missing(partitions)
            return
        asked = self._begin(partitions)

        def on_done(found: Committed | None, error: ClientError | None) -> None:
            waiting = self._still(asked)
            if found is None:
                assert error is not None
                self._retry(waiting, error)
                return
            for tp in waiting:
                if tp in found:
                    self.seek(tp, found[tp].offset, found[tp].leader_epoch)
            try:
                self._reset_missing([tp for tp in waiting if tp not in found])
            except NoOffsetError as missing:
                self._fail(missing)
            self._on_change()

        self._read_committed(partitions, on_done)

    def _reset_missing(self, partitions: list[TopicPartition]) -> None:
        if not partitions:
            return
        positions = [self._subscription.position(tp) for tp in partitions]
        if self._default_reset.is_none:
            for position in positions:
                position.busy = False
            raise NoOffsetError(partitions)
        for position in positions:
            position.request_reset(self._default_reset)
        self._look_up(partitions)

    # Resets

    def _look_up(self, partitions: list[TopicPartition]) -> None:
        asked = self._begin(partitions)
        now_ms = self._cluster.runtime.clock.wall_ms()
        specs = {}
        for tp, (position, _) in asked.items():
            assert position.reset is not None
            specs[tp] = position.reset.timestamp(now_ms)

        def on_found(tp: TopicPartition, found: ListedOffset) -> None:
            if tp not in self._still(asked):
                return
            if found.offset < 0 and specs[tp] < 0:
                # Every log has a first and an end offset, so an unknown offset is temporary: retry
                # after a backoff.
                subject = f"offset of {tp}"
                self._retry([tp], broker_error(ErrorCode.OFFSET_NOT_AVAILABLE, subject))
            elif found.offset < 0:
                # No record is that recent: continue at the end of the log.
                self.reset(tp, OffsetReset.latest())
            else:
                self.seek(tp, found.offset)
            self._on_change()

        def on_done(
            _found: dict[TopicPartition, ListedOffset] | None, error: ClientError | None
        ) -> None:
            if error is not None:
                self._retry(self._still(asked), error)

        isolation = int(self._config.isolation_level == "read_committed")
        timeout_ms = self._config.default_api_timeout_ms
        OffsetLookup(self._cluster, specs, isolation, timeout_ms, on_done, on_found).start()

    # Validation

    def _validate(self, partitions: list[TopicPartition]) -> None:
        asked = self._begin(partitions)
        metadata = self._cluster.metadata
        if any(metadata.leader(tp) not in metadata.nodes for tp in partitions):
            self._cluster.tracked.update(tp.topic for tp in partitions)
        epochs = {tp: position.epoch for tp, (position, _) in asked.items()}

        def on_end(tp: TopicPartition, end: EpochEnd | ClientError | None) -> None:
            if tp not in self._still(asked):
                return
            if isinstance(end, ClientError):
                self._cluster.request_update()
                self._retry([tp], end)
            else:
                self._on_validated(tp, asked[tp][0], end)

        ask_epoch_ends(self._cluster, epochs, on_end)

    def _on_validated(
        self, tp: TopicPartition, position: PartitionPosition, end: EpochEnd | None
    ) -> None:
        known = end is not None and end.end_offset >= 0 and end.leader_epoch >= 0
        if end is None or (known and end.end_offset >= position.offset):
            position.validated()
            self._start_fetching(tp, position)
        elif self._default_reset.is_none:
            self._fail(LogTruncationError(tp, position.offset, end.end_offset))
            position.busy = False
        elif known:
            position.seek(end.end_offset, end.leader_epoch)
            position.validated()
            self._start_fetching(tp, position)
        else:
            self.reset(tp, self._default_reset)
            self._on_change()

    # Requests in flight

    def _begin(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[PartitionPosition, int]]:
        """Mark partitions as busy; return their objects and versions to identify the request."""
        asked = {}
        for tp in partitions:
            position = self._subscription.assignment[tp]
            position.busy = True
            asked[tp] = (position, position.version)
        return asked

    def _still(
        self, asked: dict[TopicPartition, tuple[PartitionPosition, int]]
    ) -> list[TopicPartition]:
        """Return the partitions that still wait for the response to this request."""
        assignment = self._subscription.assignment
        return [
            tp
            for tp, (position, version) in asked.items()
            if assignment.get(tp) is position and position.version == version
        ]

    def _retry(self, partitions: list[TopicPartition], error: ClientError) -> None:
        """Retry after a backoff; also report errors that are not retriable to the user."""
        if not error.retriable:
            self._fail(error)
        assignment = self._subscription.assignment
        waiting = [assignment[tp] for tp in partitions if tp in assignment]
        if not waiting:
            return
        versions = [(position, position.version) for position in waiting]
        for position in waiting:
            position.failures += 1
        failures = min(position.failures for position in waiting)
        if failures == 1 and isinstance(error, UnknownTopicError):
            _log.warning("%s; asked about until it is there", error)

        def resume() -> None:
            for position, version in versions:
                if position.version == version:
                    position.busy = False
            self._on_change()

        delay = self._cluster.retry_backoff.delay_ms(failures)
        self._cluster.runtime.timer.call_later(delay, resume)

    def _fail(self, error: ClientError) -> None:
        self._error = error
        self._on_change()
