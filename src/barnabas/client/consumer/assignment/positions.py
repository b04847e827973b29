"""Find and maintain positions: committed offsets, resets and validation after leader changes.

A position belongs to a topic id. When a topic was deleted and created again, the reset strategy
selects the next position; the length of the new log does not matter.

`update` starts the requests that the assigned partitions need. A response changes the state of a
partition only if the partition still waits for that response. Partitions in state FETCHING are
passed to the fetcher; other partitions are not fetched from.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.connections.metadata_cache import ZERO_ID
from barnabas.client.consumer.assignment.topic_partition_state import OffsetReset, PositionState
from barnabas.client.consumer.errors import LogTruncationError, NoOffsetError
from barnabas.client.errors import (
    ClientError,
    OffsetOutOfRangeError,
    UnknownTopicError,
    broker_error,
)
from barnabas.client.fetch.offset_lookups import (
    EpochEnd,
    ListedOffset,
    OffsetLookup,
    request_epoch_ends,
)
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.consumer.assignment.fetch_collector import FetchCollector
    from barnabas.client.consumer.assignment.subscription import Subscription
    from barnabas.client.consumer.assignment.topic_partition_state import TopicPartitionState
    from barnabas.client.errors import CorruptRecordsError
    from barnabas.client.fetch.fetcher import Fetcher
    from barnabas.client.group.group_offsets import CommittedOffset
    from barnabas.client.retries import OnDone
    from barnabas.client.topic_partition import TopicPartition

    Committed = dict[TopicPartition, CommittedOffset]
    ReadCommitted = Callable[[list[TopicPartition], OnDone[Committed]], None]

__all__ = ["PositionDependencies", "Positions"]

_log = logging.getLogger(__name__)
_S = PositionState


class PositionDependencies(NamedTuple):
    """The objects and functions that `Positions` uses."""

    subscription: Subscription
    fetcher: Fetcher
    collector: FetchCollector
    # Fetches the group's committed offsets; None without a group.
    read_committed: ReadCommitted | None
    # Called when a position was found or an error is pending.
    on_change: Callable[[], None]


class _Request(NamedTuple):
    """A partition in a request, and the version of its state when the request began."""

    state: TopicPartitionState
    version: int


class Positions:
    """Brings assigned partitions to state FETCHING; validates them after leader changes."""

    def __init__(
        self, cluster: Cluster, dependencies: PositionDependencies, default_reset: OffsetReset
    ) -> None:
        self._cluster = cluster
        self._config = cluster.config
        self._subscription = dependencies.subscription
        self._fetcher = dependencies.fetcher
        self._collector = dependencies.collector
        self._read_committed = dependencies.read_committed
        self._on_change = dependencies.on_change
        self._default_reset = default_reset
        # Pending error; set by responses, raised and cleared by the next `update`.
        self._error: ClientError | None = None
        # Partitions whose leader or topic id has changed since they were last fetched from. Added
        # by `on_changed`, cleared by `update`. Without a reset strategy, a partition of another
        # topic stays until the user seeks.
        self._changed: set[TopicPartition] = set()

    # Calls of the consumer

    def update(self) -> None:
        """Start the requests for partitions whose position is missing or not validated.

        Raises:
            ClientError: An earlier request failed, or there is no offset to start at.
        """
        error, self._error = self._error, None
        if error is not None:
            raise error
        self._handle_changes()
        waiting: dict[PositionState, list[TopicPartitionState]] = {}
        for state in self._subscription.assignment.values():
            if state.state is not _S.FETCHING and not state.is_requesting:
                waiting.setdefault(state.state, []).append(state)
        if not waiting:
            return
        if _S.INITIALIZING in waiting:
            self._initialize(waiting[_S.INITIALIZING])
        if _S.AWAIT_RESET in waiting:
            self._look_up_offsets(waiting[_S.AWAIT_RESET])
        if _S.AWAIT_VALIDATION in waiting:
            self._validate(waiting[_S.AWAIT_VALIDATION])

    def seek(self, tp: TopicPartition, offset: int, epoch: int = -1) -> None:
        """Continue at `offset`; discard fetched records of the partition."""
        state = self._subscription.partition(tp)
        self._seek(state, offset, epoch, self._cluster.metadata.topic_id(tp.topic))

    def _seek(self, state: TopicPartitionState, offset: int, epoch: int, topic_id: bytes) -> None:
        state.topic_id = topic_id
        state.seek(offset, epoch)
        self._refetch(state)

    def rewind_to(self, corrupt: Iterable[CorruptRecordsError]) -> None:
        """Move positions back to batches that were returned but could not be decoded."""
        for error in corrupt:
            state = self._subscription.assignment.get(error.partition)
            if state is not None and state.has_position and state.offset > error.offset:
                self._seek(state, error.offset, -1, state.topic_id)

    def reset(self, tp: TopicPartition, reset: OffsetReset) -> None:
        """Discard the position; continue at the offset that `reset` selects."""
        state = self._subscription.partition(tp)
        state.request_reset(reset)
        self._collector.drop(state)

    def on_failure(self, tp: TopicPartition, error: ClientError) -> ClientError | None:
        """Handle a failed fetch of a partition; return the error to raise, or None."""
        state = self._subscription.assignment.get(tp)
        if state is None or not state.has_position:
            return None
        if isinstance(error, OffsetOutOfRangeError) and not self._default_reset.is_none:
            if error.position == state.offset:
                self.reset(tp, self._default_reset)
                self._on_change()
                return None
            # The fetcher read ahead to an offset that no longer exists; fetch again from the user's
            # position.
            self._refetch(state)
            return None
        self._refetch(state)
        return error

    def on_changed(self, tp: TopicPartition) -> None:
        """Note that the leader or the topic has changed.

        `update` handles it, since the fetcher calls this while sending.
        """
        if not self._changed:
            self._cluster.runtime.timer.call_soon(self._update_later)
        self._changed.add(tp)

    def _update_later(self) -> None:
        try:
            self.update()
        except ClientError as error:
            self._fail(error)

    def _handle_changes(self) -> None:
        changed, self._changed = self._changed, set()
        for tp in changed:
            state = self._subscription.assignment.get(tp)
            if state is None or state.state is not _S.FETCHING:
                continue
            if self._is_of_deleted_topic(state):
                self._reset_to_new_topic(state)
                continue
            if state.epoch >= 0:
                state.request_validation()
            self._refetch(state)

    def _is_of_deleted_topic(self, state: TopicPartitionState) -> bool:
        """Return whether the position belongs to a topic whose name another topic has now."""
        return state.is_of_other_topic(self._cluster.metadata.topic_id(state.tp.topic))

    def _reset_to_new_topic(self, state: TopicPartitionState) -> None:
        """Reset a position of a topic that was deleted and created again."""
        tp = state.tp
        _log.warning(
            "The topic was deleted and created again: partition=%s position=%d", tp, state.offset
        )
        if self._default_reset.is_none:
            self._changed.add(tp)
            self._collector.drop(state)
            self._fail(NoOffsetError([tp], "the topic was deleted and created again"))
        else:
            self.reset(tp, self._default_reset)
            self._on_change()

    def _refetch(self, state: TopicPartitionState) -> None:
        """Discard fetched records; fetch again from the position once it is valid."""
        self._collector.drop(state)
        if state.state is _S.FETCHING:
            self._start_fetching(state)

    def _start_fetching(self, state: TopicPartitionState) -> None:
        info = self._cluster.metadata.partition(state.tp)
        leader_epoch = -1 if info is None else info.leader_epoch
        self._fetcher.start(state, state.offset, state.epoch, leader_epoch)
        self._fetcher.send_fetches()
        self._on_change()

    # Committed offsets

    def _initialize(self, states: list[TopicPartitionState]) -> None:
        if self._read_committed is None:
            self._reset_missing(states)
            return
        requested = _begin(states)

        def on_done(found: Committed | None, error: ClientError | None) -> None:
            waiting = self._still_waiting(requested)
            if found is None:
                assert error is not None
                self._retry(waiting, error)
                return
            for state in waiting:
                if state.tp in found:
                    committed = found[state.tp]
                    self.seek(state.tp, committed.offset, committed.leader_epoch)
            try:
                self._reset_missing([state for state in waiting if state.tp not in found])
            except NoOffsetError as missing:
                self._fail(missing)
            self._on_change()

        self._read_committed([state.tp for state in states], on_done)

    def _reset_missing(self, states: list[TopicPartitionState]) -> None:
        if not states:
            return
        if self._default_reset.is_none:
            for state in states:
                state.is_requesting = False
            raise NoOffsetError(state.tp for state in states)
        for state in states:
            state.request_reset(self._default_reset)
        self._look_up_offsets(states)

    # Resets

    def _look_up_offsets(self, states: list[TopicPartitionState]) -> None:
        requested = _begin(states)
        for state in states:
            state.topic_id = self._cluster.metadata.topic_id(state.tp.topic)
        now_ms = self._cluster.runtime.clock.wall_ms()
        specs = {}
        for state in states:
            assert state.reset is not None, (state.tp, state.state)
            specs[state.tp] = state.reset.timestamp(now_ms)

        def on_found(tp: TopicPartition, found: ListedOffset) -> None:
            request = requested[tp]
            if not self._is_waiting(request):
                return
            if found.offset < 0 and specs[tp] < 0:
                # Every log has a first and an end offset, so an unknown offset is temporary: retry
                # after a backoff.
                subject = f"offset of {tp}"
                error = broker_error(ErrorCode.OFFSET_NOT_AVAILABLE, subject)
                self._retry([request.state], error)
            elif found.offset < 0:
                # No record is that recent: continue at the end of the log.
                self.reset(tp, OffsetReset.latest())
            else:
                # The topic may have been created again since the request was sent.
                state = request.state
                topic_id = state.topic_id
                if topic_id == ZERO_ID:
                    topic_id = self._cluster.metadata.topic_id(tp.topic)
                self._seek(state, found.offset, -1, topic_id)
            self._on_change()

        def on_done(
            _found: dict[TopicPartition, ListedOffset] | None, error: ClientError | None
        ) -> None:
            if error is not None:
                self._retry(self._still_waiting(requested), error)

        isolation = int(self._config.isolation_level == "read_committed")
        timeout_ms = self._config.default_api_timeout_ms
        OffsetLookup(self._cluster, specs, isolation, timeout_ms, on_done, on_found).start()

    # Validation

    def _validate(self, states: list[TopicPartitionState]) -> None:
        for state in states:
            if self._is_of_deleted_topic(state):
                self._reset_to_new_topic(state)
        states = [state for state in states if not self._is_of_deleted_topic(state)]
        requested = _begin(states)
        metadata = self._cluster.metadata
        if any(metadata.leader(tp) not in metadata.nodes for tp in requested):
            self._cluster.tracked.update(tp.topic for tp in requested)
        epochs = {state.tp: state.epoch for state in states}

        def on_end(tp: TopicPartition, end: EpochEnd | ClientError | None) -> None:
            request = requested[tp]
            if not self._is_waiting(request):
                return
            if isinstance(end, ClientError):
                self._cluster.request_update()
                self._retry([request.state], end)
            else:
                self._on_validated(request.state, end)

        request_epoch_ends(self._cluster, epochs, on_end)

    def _on_validated(self, state: TopicPartitionState, end: EpochEnd | None) -> None:
        is_known = end is not None and end.end_offset >= 0 and end.leader_epoch >= 0
        if end is None or (is_known and end.end_offset >= state.offset):
            state.validated()
            self._start_fetching(state)
        elif self._default_reset.is_none:
            self._fail(LogTruncationError(state.tp, state.offset, end.end_offset))
            state.is_requesting = False
        elif is_known:
            state.seek(end.end_offset, end.leader_epoch)
            state.validated()
            self._start_fetching(state)
        else:
            self.reset(state.tp, self._default_reset)
            self._on_change()

    # Requests in flight

    def _is_waiting(self, request: _Request) -> bool:
        """Return whether the partition still waits for the response to this request."""
        state = request.state
        is_assigned = self._subscription.assignment.get(state.tp) is state
        return is_assigned and state.version == request.version

    def _still_waiting(
        self, requested: dict[TopicPartition, _Request]
    ) -> list[TopicPartitionState]:
        return [request.state for request in requested.values() if self._is_waiting(request)]

    def _retry(self, states: list[TopicPartitionState], error: ClientError) -> None:
        """Retry after a backoff; also report errors that are not retriable to the user."""
        if not error.retriable:
            self._fail(error)
        if not states:
            return
        versions = [(state, state.version) for state in states]
        for state in states:
            state.failures += 1
        failures = min(state.failures for state in states)
        if failures == 1 and isinstance(error, UnknownTopicError):
            _log.warning("Topic of an assigned partition is unknown; retrying: error=%s", error)

        def resume() -> None:
            for state, version in versions:
                if state.version == version:
                    state.is_requesting = False
            self._on_change()

        delay = self._cluster.retry_backoff.delay_ms(failures)
        self._cluster.runtime.timer.call_later(delay, resume)

    def _fail(self, error: ClientError) -> None:
        self._error = error
        self._on_change()


def _begin(states: Iterable[TopicPartitionState]) -> dict[TopicPartition, _Request]:
    """Mark partitions as requesting; return them with the versions of their states."""
    requested = {}
    for state in states:
        state.is_requesting = True
        requested[state.tp] = _Request(state, state.version)
    return requested
