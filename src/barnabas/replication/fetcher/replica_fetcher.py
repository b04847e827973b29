"""Fetches the partitions of one fetcher id from one leader (Kafka's ReplicaFetcherThread).

A fetcher has no thread and no task: it is called by responses, timers and its manager. Each call
ends in `_continue`, which does the first of these that applies: truncate logs, resolve offsets that
are out of range, fetch, or wait for the end of a backoff. One request is in flight at a time,
whatever the number of partitions.
"""

from __future__ import annotations

import logging
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.fetcher.fetch_processing import FetchProcessing, Processed, keep_records
from barnabas.replication.fetcher.fetch_states import (
    FETCHER_STATES,
    NOT_DELAYED,
    FailedPartitions,
    FetcherEvent,
    FetcherState,
    FetchPhase,
    FetchState,
    FetchStates,
)
from barnabas.replication.fetcher.leader_endpoint import FollowerSession, RequestedPartition
from barnabas.replication.fetcher.leader_queries import LeaderQueries, QueryCallbacks
from barnabas.storage.topic_partition import TopicPartition
from barnabas.waiting.state_machine import StateMachine
from barnabas.waiting.steps import run_in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.network.network_error import NetworkError
    from barnabas.protocol.messages.fetch import FetchResponse, PartitionData
    from barnabas.replication.config import FetcherSettings
    from barnabas.replication.fetcher.fetch_states import InitialFetchState
    from barnabas.replication.fetcher.leader_endpoint import (
        FetcherKey,
        FollowerRequest,
        LeaderEndpoint,
    )
    from barnabas.replication.fetcher.local_replicas import LocalReplicas
    from barnabas.replication.fetcher.tiered_partitions import TierSettings
    from barnabas.runtime.clock import Clock
    from barnabas.waiting.timing_wheel import TimingWheel, WheelEntry

_log = logging.getLogger(__name__)

# A new partition waits at most this long for a fetch that is pending at the leader. Then the
# fetcher abandons that fetch. Without this limit, the first commits of a new leader take as long as
# replica.fetch.wait.max.ms. The fetch after it is a full fetch, which is expensive with many
# partitions. The time per partition limits that cost when topics are created one after the other.
_PENDING_FETCH_MS = 20.0
_PENDING_FETCH_PER_PARTITION_MS = 0.2

# A fetcher that expects partitions of another fetcher lets the leader wait at most this long. These
# partitions are not fetched during that time.
_EXPECTING_WAIT_MS = 10

# After a response with this many bytes of records, a catch-up fetcher pauses. Otherwise the event
# loops of both brokers would always be busy with it, and each write of another partition would wait
# for more than one of its responses.
_PAUSE_BYTES = 256 << 10
_PAUSE_MS = 2.0

# Interval of the check of idle partitions, and the number of partitions per check.
_SWEEP_MS = 450.0
_SWEEP_PARTITIONS = 64


class FetcherOwner(Protocol):
    """The manager of a fetcher, which moves partitions between fetchers."""

    def before_request(self, fetcher: ReplicaFetcher) -> bool:
        """Move partitions out of a fetcher that has no request in flight.

        Returns:
            Whether the fetcher will receive partitions of another fetcher.
        """
        ...

    def is_catch_up(self, fetcher: ReplicaFetcher) -> bool:
        """Whether the replicas of the fetcher's partitions are not in the ISR."""
        ...

    def on_unused(self, fetcher: ReplicaFetcher) -> None:
        """Handle a fetcher without partitions, and without a session with the leader."""
        ...


class FetcherDependencies(msgspec.Struct, frozen=True):
    """The collaborators that all fetchers of a broker share."""

    local: LocalReplicas
    settings: FetcherSettings
    failed: FailedPartitions
    wheel: TimingWheel
    clock: Clock
    # The remote tier. None without one.
    tier: TierSettings | None = None


class ReplicaFetcher:
    """Fetches from one leader, one request at a time."""

    __slots__ = (
        "_clock",
        "_dependencies",
        "_entry",
        "_give_up_entry",
        "_is_expecting",
        "_is_failing",
        "_is_held_back",
        "_leader",
        "_local",
        "_machine",
        "_owner",
        "_processing",
        "_queries",
        "_sent_ms",
        "_session",
        "_swept_ms",
        "_syncing",
        "_wheel",
        "answered_ms",
        "bytes_fetched",
        "key",
        "name",
        "requests",
        "states",
    )

    def __init__(
        self,
        key: FetcherKey,
        leader: LeaderEndpoint,
        dependencies: FetcherDependencies,
        owner: FetcherOwner,
    ) -> None:
        self.key = key
        self.name = key.name
        self._leader = leader
        self._dependencies = dependencies
        self._owner = owner
        self._local = dependencies.local
        self._wheel = dependencies.wheel
        self._clock = dependencies.clock
        config = dependencies.settings.config
        self.states = FetchStates(
            dependencies.clock, config.replica_fetch_backoff_ms, dependencies.failed
        )
        self._session = FollowerSession()
        self._queries = LeaderQueries(
            self.states,
            leader,
            dependencies.local,
            dependencies.tier,
            QueryCallbacks(self._expect_query, self._on_failed, self._resume),
        )
        self._processing = FetchProcessing(
            self.states,
            dependencies.local,
            config.replica_fetch_max_bytes,
            has_tier=dependencies.tier is not None,
        )
        self._machine = StateMachine(key.name, FetcherState.IDLE, FETCHER_STATES)
        # Time of the last request, in ms.
        self._sent_ms = 0.0
        # Whether another fetcher will give partitions to this one. Moved before each request.
        self._is_expecting = False
        # Whether the last request failed as a whole.
        self._is_failing = False
        # Whether a throttle kept a partition out of the last fetch.
        self._is_held_back = False
        # Time of the last check of idle partitions, in ms.
        self._swept_ms = NOT_DELAYED
        # Number of partitions whose appended records are being synced. Above 0 only if SYNCING.
        self._syncing = 0
        # Timer of the next attempt. None while a request is in flight or no partition waits.
        self._entry: WheelEntry | None = None
        # Timer that abandons the pending fetch in favor of a new partition.
        self._give_up_entry: WheelEntry | None = None
        # Requests sent since the start: responses to earlier ones than the last are ignored.
        self.requests = 0
        # Wall clock (ms) of the last response, -1 before it. It omits partitions without changes.
        self.answered_ms = -1
        # Bytes of records appended since the start.
        self.bytes_fetched = 0

    # Methods for the manager.

    def __len__(self) -> int:
        return len(self.states)

    @property
    def is_dead(self) -> bool:
        """Whether an unexpected error stopped this fetcher."""
        return self._machine.state is FetcherState.DEAD

    @property
    def is_soon_idle(self) -> bool:
        """Whether this fetcher can send a request within some milliseconds."""
        match self._machine.state:
            case FetcherState.DEAD | FetcherState.CLOSED:
                return False
            case FetcherState.FETCHING:
                return self._is_expecting
            case _:
                return True

    def lags(self) -> list[tuple[TopicPartition, int]]:
        """Return each partition's lag behind the leader's high watermark, if it is known."""
        return [(key, state.lag) for key, state in self.states.items() if state.lag is not None]

    def add(self, partitions: Mapping[TopicPartition, InitialFetchState]) -> None:
        """Start to fetch partitions.

        Partitions already fetched in the same leader epoch keep their state.
        """
        self._guarded(lambda: self._add(partitions))

    def take_over(self, states: Mapping[TopicPartition, FetchState]) -> None:
        """Fetch partitions that another fetcher fetched so far, from the next request on."""
        for key, state in states.items():
            self.states.put(key, state)
        self._guarded(self._continue)

    def remove(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, FetchState]:
        """Stop fetching partitions. Return the removed ones with their states."""
        found = {key: self.states.pop(key) for key in keys}
        return {key: state for key, state in found.items() if state is not None}

    def remove_all(self) -> dict[TopicPartition, FetchState]:
        """Stop fetching all partitions. Return them with their states."""
        return self.remove([key for key, _ in self.states.items()])

    def close(self) -> None:
        """Stop fetching and abandon the request in flight."""
        self._machine.on(FetcherEvent.CLOSED)
        self._stop_waiting()
        self._leader.close()

    def _add(self, partitions: Mapping[TopicPartition, InitialFetchState]) -> None:
        has_new = False
        to_sync: list[TopicPartition] = []
        for key, initial in partitions.items():
            known = self.states.get(key)
            if known is not None and known.current_leader_epoch == initial.current_leader_epoch:
                continue
            has_new = True
            partition = self._local.find(key)
            epoch = self._local.latest_epoch(key)
            needs_no_truncation = self._dependencies.settings.finds_divergence and epoch is not None
            phase = FetchPhase.FETCHING if needs_no_truncation else FetchPhase.TRUNCATING
            state = FetchState(initial, phase)
            if epoch is not None:
                state.last_fetched_epoch = epoch
            self.states.pop(key)
            self.states.put(key, state)
            if partition is not None and partition.log.sync.is_due:
                # Another fetcher appended these records, and did not wait for their sync.
                state.is_syncing = True
                to_sync.append(key)
        for key in to_sync:
            self._sync(key, self._on_added_synced)
        if has_new:
            self._include_soon()
        self._continue()

    def _include_soon(self) -> None:
        """Limit the time that a partition waits for a fetch that is pending without it."""
        if self._machine.state is FetcherState.FETCHING and self._give_up_entry is None:
            waited_ms = self._clock.monotonic_ms() - self._sent_ms
            limit_ms = max(_PENDING_FETCH_MS, _PENDING_FETCH_PER_PARTITION_MS * len(self.states))
            rest_ms = max(0.0, limit_ms - waited_ms)
            abandon = partial(self._abandon_fetch, self.requests)
            self._give_up_entry = self._wheel.add(rest_ms, lambda: self._guarded(abandon))

    # The request cycle.

    def _continue(self) -> None:
        """Send the next request, if the fetcher is idle."""
        if self._machine.state is not FetcherState.IDLE:
            return
        self._is_expecting = self._owner.before_request(self)
        if self._machine.state is not FetcherState.IDLE:
            # It has received partitions, and has sent their request.
            return
        self._stop_waiting()
        if self.states.are_ready or not self._queries.send_next():
            self._fetch()

    def _fetch(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._swept_ms >= _SWEEP_MS:
            # Retention may move a log start offset without a notification.
            self._swept_ms = now_ms
            self.states.mark_some_changed(_SWEEP_PARTITIONS)
        self._is_held_back = False
        changed = self.states.changed()
        wanted = {key: self._wanted(key, now_ms) for key in changed}
        if self._session.needs_all(wanted) or self._local.may_hold_back:
            given_up = [key for key in wanted if self.states.get(key) is None]
            wanted = {key: self._wanted(key, now_ms) for key, _ in self.states.items()}
            wanted.update(dict.fromkeys(given_up))
        request = self._session.build(wanted)
        delay_ms: float | None = None
        for key in changed:
            if wanted[key] is not None or self.states.get(key) is None:
                self.states.mark_sent(key)
            elif delay_ms is None:
                delay_ms = self.states.next_delay_ms()
        if request.is_empty:
            self._wait()
            return
        on_response = self._expect(FetcherEvent.FETCH_SENT, self._on_fetched, request)
        max_wait_ms = self._dependencies.settings.config.replica_fetch_wait_max_ms
        if self._is_expecting:
            max_wait_ms = min(max_wait_ms, _EXPECTING_WAIT_MS)
        if delay_ms is not None:
            # The next fetch shall include the delayed partition.
            max_wait_ms = min(max_wait_ms, ceil(delay_ms))
        self._leader.fetch(request, max_wait_ms, on_response)

    def _wanted(self, key: TopicPartition, now_ms: float) -> RequestedPartition | None:
        """Return what to fetch of a partition, or None if it is not fetched now."""
        state = self.states.get(key)
        if state is None or not state.is_ready(now_ms):
            return None
        if self._local.is_held_back(key, state.lag):
            self._is_held_back = True
            return None
        partition = self._local.find(key)
        if partition is None:
            self.states.delay([key])
            return None
        return RequestedPartition(
            state.topic_id,
            state.fetch_offset,
            partition.log.log_start_offset,
            state.current_leader_epoch,
            state.last_fetched_epoch,
        )

    def _wait(self) -> None:
        """Schedule the next attempt at the end of the first backoff."""
        if not len(self.states):
            self._owner.on_unused(self)
            return
        delay_ms = self.states.next_delay_ms()
        if self._is_held_back:
            backoff_ms = self._dependencies.settings.config.replica_fetch_backoff_ms
            delay_ms = backoff_ms if delay_ms is None else min(delay_ms, backoff_ms)
        if delay_ms is not None:
            self._entry = self._wheel.add(delay_ms, lambda: self._guarded(self._continue))

    def _stop_waiting(self) -> None:
        for entry in (self._entry, self._give_up_entry):
            if entry is not None:
                entry.cancel()
        self._entry = self._give_up_entry = None

    def _expect(
        self,
        sent: FetcherEvent,
        handle: Callable[[Any, Any, NetworkError | None], None],
        requested: object,
    ) -> Callable[[Any, NetworkError | None], None]:
        """Register a request that is being sent. Return the callback for its response."""
        self._machine.on(sent)
        self.requests += 1
        number = self.requests
        self._sent_ms = self._clock.monotonic_ms()

        def on_response(response: object, error: NetworkError | None) -> None:
            if number != self.requests or self._machine.state not in _IN_FLIGHT:
                return
            self._machine.on(FetcherEvent.RESPONSE_RECEIVED)
            if error is None:
                self._is_failing = False
            self._guarded(partial(handle, requested, response, error))
            if self._machine.state is FetcherState.IDLE:
                self._guarded(self._continue)

        return on_response

    def _expect_query(
        self, handle: Callable[[Any, Any, NetworkError | None], None], requested: object
    ) -> Callable[[Any, NetworkError | None], None]:
        """Register a query, see `_expect`."""
        return self._expect(FetcherEvent.QUERY_SENT, handle, requested)

    def _resume(self, work: Callable[[], None]) -> None:
        """Run `work`, which makes partitions ready to be fetched, and include them soon."""

        def run() -> None:
            work()
            self._include_soon()
            self._continue()

        self._guarded(run)

    def _abandon_fetch(self, number: int) -> None:
        """Abandon a pending fetch so that new partitions can be fetched."""
        self._give_up_entry = None
        if number == self.requests and self._machine.state is FetcherState.FETCHING:
            self._machine.on(FetcherEvent.FETCH_ABANDONED)
            self._leader.close()
            self._session.reset()
            self._continue()

    def _on_failed(self, keys: Iterable[TopicPartition], error: NetworkError) -> None:
        """Handle the failure of a whole request: reset the session and delay its partitions."""
        # Warn once per series of failures: a dead leader gets requests until the next election.
        _log.log(
            logging.DEBUG if self._is_failing else logging.WARNING,
            "Request to the leader failed: fetcher=%s error=%s",
            self.name,
            error,
        )
        self._is_failing = True
        self._leader.close()
        self._session.reset()
        self.states.delay(keys)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Run `work`. An unexpected error stops only this fetcher; assertion errors are raised."""
        if self._has_ended():
            return
        try:
            work()
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - only this fetcher stops
            if self._has_ended():
                return
            _log.exception(
                "Fetcher stopped by an unexpected error: fetcher=%s partitions=%d",
                self.name,
                len(self),
            )
            self._machine.on(FetcherEvent.FAILED)
            self._stop_waiting()
            self._leader.close()

    def _has_ended(self) -> bool:
        return self._machine.state in (FetcherState.DEAD, FetcherState.CLOSED)

    # Responses.

    def _on_fetched(
        self, requested: FollowerRequest, response: FetchResponse | None, error: NetworkError | None
    ) -> None:
        if response is None:
            assert error is not None
            self._on_failed([key for key, _ in self.states.items()], error)
            return
        received: dict[TopicPartition, PartitionData] = {}
        for topic in response.responses:
            name = topic.topic or self._session.topic_name(topic.topic_id)
            for each in topic.partitions:
                received[TopicPartition(name or "", each.partition_index)] = each
        code = _NONE if response.error_code == 0 else ErrorCode.of(response.error_code)
        if not self._session.on_response(code, response.session_id, received):
            self._on_session_error(requested, code)
            return
        self.answered_ms = self._clock.wall_ms()
        self._machine.on(FetcherEvent.RECORDS_RECEIVED)
        steps = self._processing.process(requested.partitions, received)
        run_later = partial(self._run_later, received)
        run_in_slices(steps, self._clock, run_later, self._on_processed)

    def _run_later(
        self, received: Mapping[TopicPartition, PartitionData], work: Callable[[], None]
    ) -> None:
        keep_records(received)
        self._wheel.add(0, partial(self._guarded, work))

    def _on_processed(self, processed: Processed) -> None:
        self._machine.on(FetcherEvent.PROCESSED)
        self.bytes_fetched += processed.bytes_appended
        self._queries.truncation.truncate_diverging(processed.diverging)
        for key in processed.moved:
            self._local.wake(key)
        if processed.to_sync:
            self._machine.on(FetcherEvent.SYNC_STARTED)
            # All of them before the first sync, which may complete immediately.
            self._syncing = len(processed.to_sync)
            for key in processed.to_sync:
                self._sync(key, self._on_appended_synced)
        elif processed.bytes_appended >= _PAUSE_BYTES and self._owner.is_catch_up(self):
            self._machine.on(FetcherEvent.PAUSE_STARTED)
            self._entry = self._wheel.add(_PAUSE_MS, lambda: self._guarded(self._on_pause_ended))
        self._continue()

    def _on_pause_ended(self) -> None:
        self._machine.on(FetcherEvent.PAUSE_ENDED)
        self._continue()

    def _on_session_error(self, requested: FollowerRequest, code: ErrorCode) -> None:
        """Drop the response after a session error. The next request is a full fetch."""
        _log.info(
            "Fetch session failed: fetcher=%s session_id=%d error=%s",
            self.name,
            requested.session_id,
            code.name,
        )
        is_full = requested.session_epoch == 0
        if is_full or code not in _SESSION_ERRORS:
            # A full request has no session that could fail: delay the retry.
            self.states.delay(requested.partitions)

    def _sync(self, key: TopicPartition, on_synced: Callable[[], None]) -> None:
        """Sync a partition before its next fetch, for flush.messages.

        The next fetch reports to the leader that the records before its fetch offset are on disk.
        """
        state = self.states.get(key)
        partition = self._local.find(key)

        def synced(error: BaseException | None) -> None:
            if state is not None and self.states.get(key) is state:
                state.is_syncing = False
                if error is not None:
                    _log.error(
                        "Sync failed, fetching stopped until the leader changes: "
                        "partition=%s error=%s",
                        key,
                        error,
                    )
                    self.states.fail(key)
            on_synced()

        if partition is None:
            synced(None)
        else:
            partition.log.sync.flush_async(lambda error: self._guarded(partial(synced, error)))

    def _on_appended_synced(self) -> None:
        self._syncing -= 1
        if self._syncing == 0:
            self._machine.on(FetcherEvent.SYNCED)
            self._continue()

    def _on_added_synced(self) -> None:
        self._include_soon()
        self._continue()


# Attribute lookup on the enum class costs 100 ns, as much as a function call.
_NONE = ErrorCode.NONE
_IN_FLIGHT = (FetcherState.QUERYING, FetcherState.FETCHING)
_SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    }
)
