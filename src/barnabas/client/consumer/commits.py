"""Offset commits: synchronous, asynchronous and automatic.

A commit belongs to the generation and to the topic ids with which it began. Callbacks run in the
order of their commits, inside calls of the user. The committed offsets are the positions after the
records that polls have returned.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.connections.metadata_cache import ZERO_ID
from barnabas.client.consumer.errors import CommitFailedError
from barnabas.client.errors import BrokerError, ClientError, ClientTimeoutError
from barnabas.client.group.group_offsets import CommittedOffset, GroupOffsets, offsets_of
from barnabas.protocol.errors import ErrorCode

__all__ = ["CommitDependencies", "Commits", "as_offsets"]

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.consumer.assignment.subscription import Subscription
    from barnabas.client.consumer.assignment.topic_partition_state import TopicPartitionState
    from barnabas.client.group.group_offsets import TopicIds
    from barnabas.client.group.membership import GroupGeneration
    from barnabas.client.retries import OnDone
    from barnabas.client.topic_partition import K, TopicPartition

    Offsets = dict[TopicPartition, CommittedOffset]
    CommitCallback = Callable[[Offsets, ClientError | None], object]

_log = logging.getLogger(__name__)

_HAS_MEMBERS = "the group has active members: stop them, or commit with another group.id"
# These errors mean that the group has removed the member that commits.
_REMOVED_MEMBER = frozenset({
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_MEMBER_EPOCH,
})  # fmt: skip


def as_offsets(given: Mapping[K, int | CommittedOffset]) -> Offsets:
    """Convert offsets as users write them, including plain integers, to `CommittedOffset` values.

    Raises:
        ValueError: An offset is negative.
    """
    found = offsets_of(given)
    for tp, committed in found.items():
        if committed.offset < 0:
            raise ValueError(f"{tp}: the offset to commit is negative: {committed.offset}")
    return found


class CommitDependencies(NamedTuple):
    """The objects and functions of the consumer that `Commits` uses."""

    subscription: Subscription
    # Returns the member and generation that commit now.
    generation: Callable[[], GroupGeneration]
    # Returns the reason why the consumer cannot commit now; None if it can.
    refusal: Callable[[], ClientError | None]
    # Called with the error and the generation of each failed commit, for the membership.
    on_error: Callable[[ClientError, GroupGeneration], None]
    # Called with the offsets and the latency (ms) of each successful commit, for interceptors and
    # metrics.
    on_committed: Callable[[Offsets, float], None]
    # Called when an asynchronous commit has ended and its callback can run.
    on_change: Callable[[], None]


class _Pending:
    """An asynchronous commit."""

    __slots__ = ("callback", "error", "is_done", "offsets")

    def __init__(self, offsets: Offsets, callback: CommitCallback | None) -> None:
        self.offsets = offsets
        self.callback = callback
        self.error: ClientError | None = None
        self.is_done = False


class Commits:
    """All commits of one consumer.

    Args:
        cluster: The cluster; provides clock, timer and configuration.
        offsets: Sends the commit requests.
        dependencies: The functions of the consumer that commits use.
        auto_interval_ms: Interval of automatic commits (ms); None disables them.
    """

    def __init__(
        self,
        cluster: Cluster,
        offsets: GroupOffsets,
        dependencies: CommitDependencies,
        auto_interval_ms: float | None,
    ) -> None:
        self._metadata = cluster.metadata
        self._clock = cluster.runtime.clock
        self._timer = cluster.runtime.timer
        self._backoff_ms = float(cluster.config.retry_backoff_ms)
        self._offsets = offsets
        self._dependencies = dependencies
        # Interval of automatic commits (ms); None if automatic commits are off.
        self._auto_interval_ms = auto_interval_ms
        # When the next automatic commit is due (ms, monotonic clock); unused if they are off.
        self._next_auto_ms = self._clock.monotonic_ms() + (auto_interval_ms or 0.0)
        # Whether an automatic commit is in progress; at most one is.
        self._is_auto_committing = False
        # Asynchronous commits whose callbacks have not run yet, in the order of the calls.
        self._pending: deque[_Pending] = deque()

    @property
    def is_auto(self) -> bool:
        """Whether automatic commits are on."""
        return self._auto_interval_ms is not None

    @property
    def is_idle(self) -> bool:
        """Whether no asynchronous commit is in progress."""
        return all(pending.is_done for pending in self._pending)

    def consumed(self) -> Offsets:
        """Return the offset to commit for each assigned partition that has a position.

        Positions of deleted topics are omitted.
        """
        return {
            tp: CommittedOffset(state.offset, state.epoch)
            for tp, state in self._dependencies.subscription.assignment.items()
            if state.has_position and not self._is_deleted(state)
        }

    def _is_deleted(self, state: TopicPartitionState) -> bool:
        """Return whether the topic of a position is gone, or its name has another topic now."""
        topic = state.tp.topic
        is_unknown = self._metadata.errors.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return is_unknown or state.is_of_other_topic(self._metadata.topic_id(topic))

    # Synchronous commits

    def commit(
        self,
        offsets: Offsets,
        timeout_ms: float,
        on_done: OnDone[bool],
        topic_ids: TopicIds | None = None,
    ) -> None:
        """Commit offsets, with retries after retriable errors.

        Args:
            offsets: The offsets by partition; an empty mapping succeeds without a request.
            timeout_ms: The time for all attempts (ms); 0 means a single attempt.
            on_done: Called once with the result; possibly before this method returns.
            topic_ids: The ids of the topics; None for those of the positions.
        """
        if not offsets:
            on_done(True, None)
            return
        refusal = self._dependencies.refusal()
        if refusal is not None:
            on_done(None, refusal)
            return
        began_ms = self._clock.monotonic_ms()
        committed_by = self._dependencies.generation()
        ids = self._topic_ids(offsets) if topic_ids is None else topic_ids

        def on_committed(_done: bool | None, error: ClientError | None) -> None:
            now_ms = self._clock.monotonic_ms()
            if error is None:
                self._dependencies.on_committed(offsets, now_ms - began_ms)
                on_done(True, None)
                return
            self._dependencies.on_error(error, committed_by)
            left_ms = timeout_ms - (now_ms - began_ms)
            stale = error.error_code is ErrorCode.STALE_MEMBER_EPOCH
            # If the member epoch has changed since, retry immediately. Otherwise wait for the
            # heartbeat response that carries the new epoch.
            pause_ms = 0.0 if self._dependencies.generation() != committed_by else self._backoff_ms
            if stale and left_ms > pause_ms:
                again = partial(self.commit, offsets, left_ms - pause_ms, on_done, ids)
                self._timer.call_later(pause_ms, again)
            else:
                on_done(None, _explained(error, committed_by, is_last=timeout_ms > 0))

        self._offsets.commit(committed_by, offsets, ids, timeout_ms, on_committed)

    def _topic_ids(self, offsets: Offsets) -> TopicIds:
        """Return the ids of the topics that the positions belong to, or else the current ids.

        Metadata may already have no id or another id, because the topic was deleted.
        """
        assignment = self._dependencies.subscription.assignment
        ids: dict[str, bytes] = {}
        for tp in offsets:
            state = assignment.get(tp)
            topic_id = ZERO_ID if state is None else state.topic_id
            if topic_id == ZERO_ID:
                topic_id = self._metadata.topic_id(tp.topic)
            ids[tp.topic] = topic_id
        return ids

    # Asynchronous commits

    def commit_later(self, offsets: Offsets, callback: CommitCallback | None) -> None:
        """Commit once, without retries; `callback` runs during a later call of the user."""
        pending = _Pending(offsets, callback)
        self._pending.append(pending)

        def on_done(_done: bool | None, error: ClientError | None) -> None:
            pending.error = _cause(error)
            pending.is_done = True
            self._dependencies.on_change()

        self.commit(offsets, 0.0, on_done)

    def run_callbacks(self) -> None:
        """Run the callbacks of ended commits, in commit order, up to the first pending one."""
        while self._pending and self._pending[0].is_done:
            pending = self._pending.popleft()
            if pending.callback is not None:
                pending.callback(pending.offsets, pending.error)
            elif pending.error is not None:
                _log.warning("Asynchronous commit failed: error=%s", pending.error)

    # Automatic commits

    def next_auto_ms(self) -> float | None:
        """Return when the next automatic commit is due (ms, monotonic clock), or None."""
        return self._next_auto_ms if self.is_auto else None

    def maybe_auto_commit(self) -> None:
        """Commit the records that earlier polls returned, if an automatic commit is due."""
        now_ms = self._clock.monotonic_ms()
        if self._auto_interval_ms is None or now_ms < self._next_auto_ms:
            return
        self._next_auto_ms = now_ms + self._auto_interval_ms
        if self._is_auto_committing or not self._dependencies.subscription.assignment:
            return
        if self._dependencies.refusal() is not None:
            return
        self._is_auto_committing = True

        def on_done(_done: bool | None, error: ClientError | None) -> None:
            self._is_auto_committing = False
            if error is None:
                return
            _log.warning("Automatic commit failed: error=%s", error)
            if error.retriable:
                soon_ms = self._clock.monotonic_ms() + self._backoff_ms
                self._next_auto_ms = min(self._next_auto_ms, soon_ms)

        self.commit(self.consumed(), 0.0, on_done)

    def commit_before(self, timeout_ms: float, on_done: Callable[[], None]) -> None:
        """Commit automatically before partitions are revoked; failures are only logged."""
        if not self.is_auto:
            on_done()
            return

        def on_committed(_done: bool | None, error: ClientError | None) -> None:
            if error is not None:
                _log.warning("Automatic commit before a revocation failed: error=%s", error)
            on_done()

        self.commit(self.consumed(), timeout_ms, on_committed)


def _explained(error: ClientError, committed_by: GroupGeneration, *, is_last: bool) -> ClientError:
    """Return the error that the user sees for a failed commit.

    Args:
        error: The error of the request.
        committed_by: The generation that committed. An empty member id means that the partitions
            were assigned by hand; no rebalance can have removed that consumer.
        is_last: Whether this was the last attempt of several, all refused because of a stale epoch.
    """
    codes = _REMOVED_MEMBER | {ErrorCode.STALE_MEMBER_EPOCH} if is_last else _REMOVED_MEMBER
    if isinstance(error, BrokerError) and error.error_code in codes:
        cause = None if committed_by.member_id else error.detail or _HAS_MEMBERS
        failed = CommitFailedError(error.error_code, error.subject, cause)
        failed.__cause__ = error
        return failed
    return error


def _cause(error: ClientError | None) -> ClientError | None:
    """Return the error of a single attempt in place of the timeout that wraps it."""
    if isinstance(error, ClientTimeoutError) and isinstance(error.__cause__, ClientError):
        return error.__cause__
    return error
