"""Moves followers past the records that their leader has only in the remote tier (KIP-405).

The leader answers OFFSET_MOVED_TO_TIERED_STORAGE, and the partition goes through these steps:

    TIERED    (a) Query the start of the leader's local log, and the epoch of the record there.
              (b) Query the end of the epoch before, which tells the epoch of the record before.
    BUILDING  (c) Load the state at the end of the remote segment that has that record.
              (d) Empty the log, and start it at the end of the segment with that state.
    FETCHING

With follower.fetch.last.tiered.offset.enable (KIP-1023), step (a) of an empty follower queries the
first offset that is not in the tier instead. The other partitions of the fetcher are fetched during
step (c). After each problem the partition waits for the backoff. Then the next fetch shows whether
its records are still in the tier. Kafka: TierStateMachine.
"""

from __future__ import annotations

import logging
from functools import partial
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.fetcher.fetch_states import USUAL_ERRORS_MAX, FetchPhase
from barnabas.replication.fetcher.leader_endpoint import EpochQuery
from barnabas.replication.partition.offset_lookup import EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD
from barnabas.replication.partition.results import UNKNOWN_EPOCH
from barnabas.replication.remote.auxiliary_state import LoadProblem
from barnabas.storage.errors import StorageError
from barnabas.storage.topic_partition import TopicIdPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from barnabas.replication.fetcher.fetch_states import FetchState, FetchStates
    from barnabas.replication.fetcher.leader_endpoint import ListedOffset
    from barnabas.replication.fetcher.local_replicas import LocalReplicas
    from barnabas.replication.partition.results import EpochEndOffset
    from barnabas.replication.remote.auxiliary_state import AuxiliaryStates
    from barnabas.replication.remote.segment_end import AuxiliaryState
    from barnabas.storage.log.log import Log
    from barnabas.storage.topic_partition import TopicPartition

_log = logging.getLogger(__name__)


class TierQuery(NamedTuple):
    """A query for an offset of the leader's log. Its result is the end of the records to skip."""

    # EARLIEST_LOCAL or EARLIEST_PENDING_UPLOAD.
    timestamp: int
    # The partitions, with their leader epochs.
    partitions: dict[TopicPartition, int]


class _Target(NamedTuple):
    """The result of a `TierQuery` for a partition."""

    state: FetchState
    # The follower skips the records below, at least.
    offset: int
    # Leader epoch of the record at `offset`.
    epoch: int


class TierSettings(NamedTuple):
    """What decides how a fetcher uses the remote tier."""

    states: AuxiliaryStates
    # Whether the leader knows EARLIEST_PENDING_UPLOAD.
    lists_pending_uploads: Callable[[], bool]

    def skips_all(self, log: Log) -> bool:
        """Whether a follower with that log skips all records that are in the tier (KIP-1023)."""
        return (
            log.log_end_offset == 0
            and log.config.is_remote
            and self.states.starts_at_last_tiered
            and self.lists_pending_uploads()
        )


class TieredPartitions:
    """The partitions of a fetcher in the phases TIERED and BUILDING."""

    __slots__ = ("_local", "_resume", "_settings", "_states", "_targets")

    def __init__(
        self,
        states: FetchStates,
        local: LocalReplicas,
        settings: TierSettings,
        resume: Callable[[Callable[[], None]], None],
    ) -> None:
        """Create the object.

        Args:
            states: the partitions of the fetcher.
            local: the replicas of this broker.
            settings: the remote tier.
            resume: runs a function and then sends the next request, unless the fetcher has ended.
        """
        self._states = states
        self._local = local
        self._settings = settings
        self._resume = resume
        # The partitions of the pending query of step (b).
        self._targets: dict[TopicPartition, _Target] = {}

    def query(self) -> TierQuery | None:
        """Return the next query of step (a), or None if no partition needs one."""
        queries: dict[int, dict[TopicPartition, int]] = {}
        for key, state in self._states.in_phase(FetchPhase.TIERED):
            partition = self._local.find(key)
            where = TopicIdPartition(state.topic_id, *key)
            if partition is None:
                self._retry(key, state)
            elif not partition.log.config.is_remote:
                # The metadata of this broker may be older than that of the leader.
                self._report(key, state, LoadProblem("the topic has no remote tier here"))
            elif not self._settings.states.is_ready(where):
                unread = LoadProblem("the metadata of its segments is not read yet", is_usual=True)
                self._report(key, state, unread)
            else:
                # A leader without such an offset does not know its tier yet, or has copied all
                # records. The latter may last, so the replica then copies the local log.
                has_tried = state.errors_in_a_row >= USUAL_ERRORS_MAX
                skips_all = not has_tried and self._settings.skips_all(partition.log)
                timestamp = EARLIEST_PENDING_UPLOAD if skips_all else EARLIEST_LOCAL
                queries.setdefault(timestamp, {})[key] = state.current_leader_epoch
        for timestamp, partitions in queries.items():
            return TierQuery(timestamp, partitions)
        return None

    def on_offsets(
        self, query: TierQuery, listed: Mapping[TopicPartition, ListedOffset]
    ) -> dict[TopicPartition, EpochQuery]:
        """Process the leader's response to a query of step (a). Return the queries of step (b)."""
        self._targets.clear()
        queries: dict[TopicPartition, EpochQuery] = {}
        for key, state in self._current(query.partitions.items()):
            result = listed.get(key)
            if result is None or result.error is not ErrorCode.NONE:
                self._on_error(key, state, None if result is None else result.error)
            elif result.offset < 0 or result.leader_epoch < 0:
                # The leader does not know yet what the tier has, or the epoch of that record.
                self._on_error(key, state, ErrorCode.OFFSET_NOT_AVAILABLE)
            elif not self._restarts_locally(key, state, result.offset):
                epoch = result.leader_epoch
                if epoch == 0:
                    # No earlier epoch exists, so the record before has the same one.
                    self._build(key, state, epoch, result.offset)
                else:
                    self._targets[key] = _Target(state, result.offset, epoch)
                    queries[key] = EpochQuery(state.current_leader_epoch, epoch - 1)
        return queries

    def on_epoch_ends(
        self,
        requested: Mapping[TopicPartition, EpochQuery],
        ends: Mapping[TopicPartition, EpochEndOffset],
    ) -> None:
        """Process the leader's response to the queries of step (b)."""
        asked = [(key, query.current_leader_epoch) for key, query in requested.items()]
        for key, state in self._current(asked):
            target, end = self._targets.get(key), ends.get(key)
            if target is None or target.state is not state:
                continue
            if end is None or end.error is not ErrorCode.NONE:
                self._on_error(key, state, None if end is None else end.error)
            else:
                # The leader names the largest epoch up to the requested one, so gaps are skipped.
                has_record_before = end.end_offset > target.offset - 1
                epoch = end.epoch if has_record_before else target.epoch
                self._build(key, state, epoch, target.offset)
        self._targets.clear()

    def on_failed(self, keys: Iterable[TopicPartition]) -> None:
        """Return the partitions of a failed request to fetching."""
        for key in keys:
            state = self._states.get(key)
            if state is not None and state.phase is FetchPhase.TIERED:
                state.phase = FetchPhase.FETCHING

    def _current(
        self, requested: Iterable[tuple[TopicPartition, int]]
    ) -> Iterator[tuple[TopicPartition, FetchState]]:
        """Yield the partitions whose states have not changed since the query."""
        for key, epoch in requested:
            state = self._states.get(key)
            if (
                state is not None
                and state.phase is FetchPhase.TIERED
                and state.current_leader_epoch == epoch
            ):
                yield key, state

    def _restarts_locally(self, key: TopicPartition, state: FetchState, offset: int) -> bool:
        """Continue without the tier if no record before `offset` is in it. Return whether so."""
        partition = self._local.find(key)
        if partition is None or offset <= partition.log.log_end_offset:
            # The leader's local log has the next record, so the earlier response is obsolete.
            self._retry(key, state)
            return True
        if offset > state.leader_log_start_offset:
            return False
        # The leader's log starts there, and nothing of it is in the tier.
        self._change_log(key, state, partial(self._local.restart_log_at, key, offset))
        return True

    def _build(self, key: TopicPartition, state: FetchState, epoch: int, offset: int) -> None:
        """Load the state that a log needs to start behind the records below `offset`."""
        state.phase = FetchPhase.BUILDING
        where = TopicIdPartition(state.topic_id, *key)

        def on_loaded(outcome: AuxiliaryState | LoadProblem) -> None:
            self._resume(partial(self._on_loaded, key, state, outcome))

        self._settings.states.load(where, epoch, offset - 1, on_loaded)

    def _on_loaded(
        self, key: TopicPartition, state: FetchState, outcome: AuxiliaryState | LoadProblem
    ) -> None:
        if self._states.get(key) is not state or state.phase is not FetchPhase.BUILDING:
            # The partition was removed, or has another leader epoch.
            return
        if isinstance(outcome, LoadProblem):
            self._report(key, state, outcome)
            return
        log_start_offset = state.leader_log_start_offset
        start = partial(self._local.start_behind_tier, key, outcome, log_start_offset)
        self._change_log(key, state, start)

    def _change_log(
        self, key: TopicPartition, state: FetchState, change: Callable[[], None]
    ) -> None:
        """Empty the log and start it elsewhere. Fetch from its new end."""
        try:
            change()
        except StorageError as error:
            _log.error("Log cannot be started anew: partition=%s error=%s", key, error)
            self._retry(key, state)
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - the other partitions are still handled
            self._states.fail_unexpectedly(key, "starting the log behind the remote tier")
        else:
            self._fetch_from_end(key, state)

    def _fetch_from_end(self, key: TopicPartition, state: FetchState) -> None:
        before = (state.fetch_offset, state.last_fetched_epoch)
        log = self._local.log(key)
        epoch = self._local.latest_epoch(key)
        state.fetch_offset = log.log_end_offset
        state.last_fetched_epoch = UNKNOWN_EPOCH if epoch is None else epoch
        state.lag = max(0, state.leader_high_watermark - state.fetch_offset)
        state.phase = FetchPhase.FETCHING
        self._states.move_to_end(key)
        if before == (state.fetch_offset, state.last_fetched_epoch):
            # The next request would be identical: delay it.
            self._states.delay([key])
        self._local.wake(key)

    def _on_error(self, key: TopicPartition, state: FetchState, error: ErrorCode | None) -> None:
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            state.phase = FetchPhase.FETCHING
            self._states.fence(key, state.current_leader_epoch)
            return
        name = "no response" if error is None else error.name
        self._report(key, state, LoadProblem(f"the leader answered {name}", is_usual=True))

    def _report(self, key: TopicPartition, state: FetchState, problem: LoadProblem) -> None:
        """Log a problem, and retry after the backoff.

        A usual problem is logged if it persists, and its first backoffs are short. Another one is
        logged the first time.
        """
        state.errors_in_a_row += 1
        is_new = state.logged_error is not ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
        if problem.is_usual:
            level = logging.WARNING if state.errors_in_a_row == USUAL_ERRORS_MAX else logging.DEBUG
        else:
            level = logging.ERROR if is_new else logging.DEBUG
            state.logged_error = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
        _log.log(
            level,
            "Follower cannot start behind the remote tier yet: partition=%s problem=%s",
            key,
            problem.text,
        )
        self._retry(key, state, state.usual_backoff_ms if problem.is_usual else inf)

    def _retry(self, key: TopicPartition, state: FetchState, limit_ms: float = inf) -> None:
        """Fetch again after the backoff: the leader tells whether the records are still tiered."""
        state.phase = FetchPhase.FETCHING
        self._states.delay([key], limit_ms)
