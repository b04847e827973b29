"""Follows one leader with the partitions of one fetcher id (Kafka's ReplicaFetcherThread).

No thread and no task: an object that answers of the leader, timers and its manager call. Each call
ends in `_go_on`, which does the first thing there is to do: cut logs, find out about offsets the
leader does not have, fetch; or waits until a back-off is over or a partition is taken on. One
request is in flight at a time, whatever the number of partitions.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.fetch_processing import FetchProcessing
from barnabas.replication.fetch_state import NOT_DELAYED, FetchPhase, FetchState
from barnabas.replication.fetch_states import FailedPartitions, FetchStates
from barnabas.replication.follower_session import AskedPartition, FollowerSession
from barnabas.replication.follower_truncation import FollowerTruncation
from barnabas.replication.offset_lookup import EARLIEST, LATEST
from barnabas.replication.out_of_range import OutOfRange
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.network.network_error import NetworkError
    from barnabas.protocol.messages.fetch import FetchResponse
    from barnabas.replication.fetch_state import InitialFetchState
    from barnabas.replication.fetcher_settings import FetcherSettings
    from barnabas.replication.follower_session import FollowerRequest
    from barnabas.replication.leader_endpoint import EpochQuestion, LeaderEndpoint, ListedOffset
    from barnabas.replication.local_replicas import LocalReplicas
    from barnabas.replication.results import EpochEndOffset
    from barnabas.runtime.clock import Clock
    from barnabas.waiting.timing_wheel import TimingWheel, WheelEntry

_log = logging.getLogger(__name__)

# A partition that is taken on waits no longer than this for the answer to a fetch that waits for
# data at the leader; then that fetch is given up. Without it a new leader's first commits would
# take as long as replica.fetch.wait.max.ms. The next fetch is a full one: with many partitions, and
# topics made one after the other, giving up so soon would be most of what is done.
_PATIENCE_MS = 20.0
_PATIENCE_PER_PARTITION_MS = 0.2


# So often so many partitions are looked at that nobody has touched.
_SWEEP_MS = 450.0
_SWEEP_PARTITIONS = 64


class FetcherParts(msgspec.Struct, frozen=True):
    """What all fetchers of a broker are joined with."""

    local: LocalReplicas
    settings: FetcherSettings
    failed: FailedPartitions
    wheel: TimingWheel
    clock: Clock


class ReplicaFetcher:
    """One request in flight, round after round."""

    __slots__ = (
        "_clock",
        "_entry",
        "_hurry",
        "_is_closed",
        "_is_failing",
        "_is_fetching",
        "_is_held_back",
        "_leader",
        "_local",
        "_out_of_range",
        "_parts",
        "_processing",
        "_request",
        "_sent_ms",
        "_session",
        "_states",
        "_swept_ms",
        "_syncing",
        "_truncation",
        "_wheel",
        "bytes_fetched",
        "is_dead",
        "name",
        "requests",
    )

    def __init__(self, name: str, leader: LeaderEndpoint, parts: FetcherParts) -> None:
        # As Kafka names its threads, for metrics.
        self.name = name
        self._leader = leader
        self._parts = parts
        self._local = parts.local
        self._wheel = parts.wheel
        self._clock = parts.clock
        config = parts.settings.config
        self._states = FetchStates(parts.clock, config.replica_fetch_backoff_ms, parts.failed)
        self._session = FollowerSession()
        self._truncation = FollowerTruncation(self._states, parts.local)
        self._out_of_range = OutOfRange(self._states, parts.local)
        self._processing = FetchProcessing(
            self._states, parts.local, config.replica_fetch_max_bytes
        )
        # Counts requests; None while none is in flight. Answers to others are ignored.
        self._request: int | None = None
        self._sent_ms = 0.0
        # Whether the request in flight is a fetch, which may wait for data at the leader.
        self._is_fetching = False
        # The last request as a whole has failed.
        self._is_failing = False
        # Whether a throttle kept a partition out of the last fetch.
        self._is_held_back = False
        # When partitions without news were looked at last.
        self._swept_ms = NOT_DELAYED
        # Partitions whose appended records are being synced; no fetch leaves before.
        self._syncing = 0
        # When to look again; None while something else will happen, or nothing has to.
        self._entry: WheelEntry | None = None
        # When the request in flight is given up for a partition that was taken on.
        self._hurry: WheelEntry | None = None
        self._is_closed = False
        # An error that nobody expected has ended it; its partitions are not fetched any more.
        self.is_dead = False
        # Requests sent, and bytes of records appended, since it began.
        self.requests = 0
        self.bytes_fetched = 0

    # What the manager calls.

    def __len__(self) -> int:
        return len(self._states)

    @property
    def leader_id(self) -> int:
        """The broker that is followed."""
        return self._leader.broker_id

    def lags(self) -> list[tuple[TopicPartition, int]]:
        """How far each partition is behind its leader's high watermark, where that is known."""
        return [(key, state.lag) for key, state in self._states.items() if state.lag is not None]

    def state(self, key: TopicPartition) -> FetchState | None:
        """Where it is with a partition; None if it does not fetch it."""
        return self._states.get(key)

    def add(self, partitions: Mapping[TopicPartition, InitialFetchState]) -> None:
        """Take partitions on; one that is followed in the same leader epoch goes on as it was."""
        self._guarded(lambda: self._add(partitions))

    def remove(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, FetchState]:
        """Give partitions up; returns those that it had."""
        found = {key: self._states.pop(key) for key in keys}
        return {key: state for key, state in found.items() if state is not None}

    def remove_all(self) -> dict[TopicPartition, FetchState]:
        """Give all partitions up."""
        return self.remove([key for key, _ in self._states.items()])

    def close(self) -> None:
        """Fetch no more; what is in flight is given up."""
        self._is_closed = True
        self._stop_waiting()
        self._request = None
        self._leader.close()

    def _add(self, partitions: Mapping[TopicPartition, InitialFetchState]) -> None:
        is_news = False
        for key, initial in partitions.items():
            known = self._states.get(key)
            if known is not None and known.current_leader_epoch == initial.current_leader_epoch:
                continue
            is_news = True
            partition = self._local.find(key)
            epoch = None if partition is None else partition.log.latest_epoch
            needs_no_cut = self._leader.finds_divergence and epoch is not None
            phase = FetchPhase.FETCHING if needs_no_cut else FetchPhase.TRUNCATING
            state = FetchState(initial, phase)
            if epoch is not None:
                state.last_fetched_epoch = epoch
            self._states.pop(key)
            self._states.put(key, state)
        if is_news and self._request is not None and self._is_fetching and self._hurry is None:
            waited_ms = self._clock.monotonic_ms() - self._sent_ms
            patience_ms = max(_PATIENCE_MS, _PATIENCE_PER_PARTITION_MS * len(self._states))
            rest_ms = max(0.0, patience_ms - waited_ms)
            give_up = partial(self._give_up, self._request)
            self._hurry = self._wheel.add(rest_ms, lambda: self._guarded(give_up))
        self._go_on()

    # The loop.

    def _go_on(self) -> None:
        """Do the first thing that there is to do, unless a request is in flight."""
        if self._request is not None or self._syncing or self._is_closed or self.is_dead:
            return
        self._stop_waiting()
        self._truncation.cut_without_epoch()
        epochs = self._truncation.questions()
        if epochs:
            self._leader.epoch_ends(epochs, self._expect(self._on_epoch_ends, epochs))
            return
        ends = self._out_of_range.questions()
        if ends:
            self._leader.offsets(ends, LATEST, self._expect(self._on_ends, ends))
            return
        self._fetch()

    def _fetch(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._swept_ms >= _SWEEP_MS:
            # A log start that retention has moved tells nobody.
            self._swept_ms = now_ms
            self._states.touch_some(_SWEEP_PARTITIONS)
        self._is_held_back = False
        looked_at = {key: self._wanted(key, now_ms) for key in self._states.restless()}
        if self._session.needs_all(looked_at) or self._local.may_hold_back:
            given_up = [key for key in looked_at if self._states.get(key) is None]
            looked_at = {key: self._wanted(key, now_ms) for key, _ in self._states.items()}
            looked_at.update(dict.fromkeys(given_up))
        request = self._session.build(looked_at)
        for key in self._states.restless():
            if looked_at[key] is not None or self._states.get(key) is None:
                self._states.settle(key)
        if request.is_empty:
            self._wait()
            return
        self._is_fetching = True
        self._leader.fetch(request, self._expect(self._on_fetched, request))

    def _wanted(self, key: TopicPartition, now_ms: float) -> AskedPartition | None:
        """What to ask about a partition; None: nothing now."""
        state = self._states.get(key)
        if state is None or not state.is_ready(now_ms):
            return None
        if self._local.is_held_back(key, state.lag):
            self._is_held_back = True
            return None
        partition = self._local.find(key)
        if partition is None:
            self._states.delay([key])
            return None
        return AskedPartition(
            state.topic_id,
            state.fetch_offset,
            partition.log.log_start_offset,
            state.current_leader_epoch,
            state.last_fetched_epoch,
        )

    def _wait(self) -> None:
        """Nothing can be asked now: look again when the first back-off is over."""
        delay_ms = self._states.next_delay_ms()
        if self._is_held_back:
            backoff_ms = self._parts.settings.config.replica_fetch_backoff_ms
            delay_ms = backoff_ms if delay_ms is None else min(delay_ms, backoff_ms)
        if delay_ms is not None:
            self._entry = self._wheel.add(delay_ms, lambda: self._guarded(self._go_on))

    def _stop_waiting(self) -> None:
        for entry in (self._entry, self._hurry):
            if entry is not None:
                entry.cancel()
        self._entry = self._hurry = None

    def _expect(
        self, take: Callable[[Any, Any, NetworkError | None], None], asked: object
    ) -> Callable[[Any, NetworkError | None], None]:
        """What to call with the answer to the request that is being sent."""
        self.requests += 1
        number = self._request = self.requests
        self._sent_ms = self._clock.monotonic_ms()

        def answered(answer: object, error: NetworkError | None) -> None:
            if self._request != number or self._is_closed:
                return
            self._request = None
            self._is_fetching = False
            if error is None:
                self._is_failing = False
            self._guarded(partial(take, asked, answer, error))
            self._guarded(self._go_on)

        return answered

    def _give_up(self, number: int) -> None:
        """A fetch waits for data while there is something new to ask."""
        self._hurry = None
        if self._request == number and self._is_fetching:
            self._request = None
            self._is_fetching = False
            self._leader.close()
            self._session.reset()
            self._go_on()

    def _on_failed(self, keys: Iterable[TopicPartition], error: NetworkError) -> None:
        """A request as a whole has failed."""
        # Once while it lasts: a leader that has died is asked until another one is elected.
        _log.log(logging.DEBUG if self._is_failing else logging.WARNING, "%s: %s", self.name, error)
        self._is_failing = True
        self._leader.close()
        self._session.reset()
        self._states.delay(keys)

    def _guarded(self, work: Callable[[], None]) -> None:
        """An error that escapes ends this fetcher only; a broken invariant is everybody's."""
        if self._is_closed or self.is_dead:
            return
        try:
            work()
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - one fetcher ends, and is counted
            if self._is_closed:
                return
            _log.exception("%s has died; its partitions are not replicated any more", self.name)
            self.is_dead = True
            self._stop_waiting()
            self._request = None
            self._leader.close()

    # Answers.

    def _on_epoch_ends(
        self,
        asked: dict[TopicPartition, EpochQuestion],
        ends: dict[TopicPartition, EpochEndOffset] | None,
        error: NetworkError | None,
    ) -> None:
        if ends is None:
            assert error is not None
            self._on_failed(asked, error)
        else:
            self._truncation.take_ends(asked, ends)

    def _on_ends(
        self,
        asked: dict[TopicPartition, int],
        answers: dict[TopicPartition, ListedOffset] | None,
        error: NetworkError | None,
    ) -> None:
        if answers is None:
            self._on_no_offsets(asked, error)
            return
        starts = self._out_of_range.take_ends(asked, answers)
        if starts:
            self._leader.offsets(starts, EARLIEST, self._expect(self._on_starts, starts))

    def _on_starts(
        self,
        asked: dict[TopicPartition, int],
        answers: dict[TopicPartition, ListedOffset] | None,
        error: NetworkError | None,
    ) -> None:
        if answers is None:
            self._on_no_offsets(asked, error)
        else:
            self._out_of_range.take_starts(asked, answers)

    def _on_no_offsets(self, asked: dict[TopicPartition, int], error: NetworkError | None) -> None:
        assert error is not None
        self._out_of_range.on_failed(asked)
        self._on_failed(asked, error)

    def _on_fetched(
        self, asked: FollowerRequest, response: FetchResponse | None, error: NetworkError | None
    ) -> None:
        if response is None:
            assert error is not None
            self._on_failed([key for key, _ in self._states.items()], error)
            return
        answered: dict[TopicPartition, Any] = {}
        for topic in response.responses:
            name = topic.topic or self._session.topic_name(topic.topic_id)
            for each in topic.partitions:
                answered[TopicPartition(name or "", each.partition_index)] = each
        code = ErrorCode.of(response.error_code)
        if not self._session.take_answer(code, response.session_id, answered):
            self._on_session_error(asked, code)
            return
        processed = self._processing.process(asked.partitions, answered)
        self.bytes_fetched += processed.bytes_appended
        self._truncation.take_diverging(processed.diverging)
        for key in processed.moved:
            self._local.wake(key)
        # Last, since a sync may be over at once.
        self._syncing += len(processed.to_sync)
        for key in processed.to_sync:
            self._sync(key)

    def _on_session_error(self, asked: FollowerRequest, code: ErrorCode) -> None:
        """The answer is dropped; the next request is a full one."""
        _log.info("%s: fetch session %d: %s", self.name, asked.session_id, code.name)
        is_full = asked.session_epoch == 0
        if is_full or code not in _SESSION_ERRORS:
            # A full request cannot meet an error of a session: do not ask it again and again.
            self._states.delay(asked.partitions)

    def _sync(self, key: TopicPartition) -> None:
        """With flush.messages: what the next fetch says is here has to be on the disk."""
        state = self._states.get(key)
        partition = self._local.find(key)

        def synced(error: BaseException | None) -> None:
            self._guarded(partial(self._on_synced, key, state, error))

        if partition is None:
            synced(None)
        else:
            partition.log.flush_async(synced)

    def _on_synced(
        self, key: TopicPartition, state: FetchState | None, error: BaseException | None
    ) -> None:
        self._syncing -= 1
        if state is not None and self._states.get(key) is state:
            state.is_syncing = False
            if error is not None:
                _log.error("%s is fetched no more by this leadership: not synced: %s", key, error)
                self._states.fail(key)
        self._go_on()


_SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    }
)
