"""Committing offsets: at once, in the background, and by itself every so often (F6).

A commit speaks for the generation in which it was begun. Callbacks run in the order of their
commits, inside of the user's calls. What is committed is where the user is: behind the records that
polls have returned.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.consumer.errors import CommitFailedError
from barnabas.client.errors import BrokerError, ClientError, ClientTimeoutError
from barnabas.client.group_offsets import CommittedOffset, GroupOffsets, offsets_of
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.client.cluster import Cluster
    from barnabas.client.consumer.subscription import Subscription
    from barnabas.client.group.membership import GroupGeneration
    from barnabas.client.retrying import OnDone
    from barnabas.client.topic_partition import K, TopicPartition

    Offsets = dict[TopicPartition, CommittedOffset]
    CommitCallback = Callable[[Offsets, ClientError | None], object]

__all__ = ["CommitParts", "Commits", "as_offsets"]

_log = logging.getLogger(__name__)

_HAS_MEMBERS = "the group has members: stop them, or commit under another group name"
# The group went on without the member that speaks.
_EXPELLED = frozenset({
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_MEMBER_EPOCH,
})  # fmt: skip


def as_offsets(given: Mapping[K, int | CommittedOffset]) -> Offsets:
    """Offsets as users write them: plain numbers too.

    Raises:
        ValueError: a negative offset.
    """
    found = offsets_of(given)
    for tp, committed in found.items():
        if committed.offset < 0:
            raise ValueError(f"{tp}: an offset to commit cannot be {committed.offset}")
    return found


class CommitParts(NamedTuple):
    """What commits need of their consumer."""

    subscription: Subscription
    # Who speaks at this moment.
    speaker: Callable[[], GroupGeneration]
    # Why nobody can commit at this moment, None if somebody can.
    refusal: Callable[[], ClientError | None]
    # Told of refused commits: the membership's.
    on_error: Callable[[ClientError, GroupGeneration], None]
    # Told of what was committed: the interceptors', and metrics.
    on_committed: Callable[[Offsets, float], None]
    # Called when a callback waits to be run.
    on_change: Callable[[], None]


class _Pending:
    """A commit in the background."""

    __slots__ = ("callback", "error", "is_done", "offsets")

    def __init__(self, offsets: Offsets, callback: CommitCallback | None) -> None:
        self.offsets = offsets
        self.callback = callback
        self.error: ClientError | None = None
        self.is_done = False


class Commits:
    """All commits of one consumer."""

    def __init__(
        self,
        cluster: Cluster,
        offsets: GroupOffsets,
        parts: CommitParts,
        auto_interval_ms: float | None,
    ) -> None:
        self._clock = cluster.runtime.clock
        self._timer = cluster.runtime.timer
        self._backoff_ms = float(cluster.config.retry_backoff_ms)
        self._offsets = offsets
        self._parts = parts
        # None without auto commit.
        self._auto_interval_ms = auto_interval_ms
        self._next_auto_ms = self._clock.monotonic_ms() + (auto_interval_ms or 0.0)
        self._auto_is_under_way = False
        # Commits in the background, in the order of their calls.
        self._pending: deque[_Pending] = deque()

    @property
    def is_auto(self) -> bool:
        """Whether offsets are committed without being asked."""
        return self._auto_interval_ms is not None

    @property
    def is_idle(self) -> bool:
        """Whether no commit in the background is under way."""
        return all(pending.is_done for pending in self._pending)

    def consumed(self) -> Offsets:
        """Where the user is, of every assigned partition that has a position."""
        return {
            tp: CommittedOffset(position.offset, position.epoch)
            for tp, position in self._parts.subscription.assignment.items()
            if position.has_position
        }

    # At once

    def commit(self, offsets: Offsets, timeout_ms: float, on_done: OnDone[bool]) -> None:
        """Commit, trying again after errors that pass; `on_done` may be called at once."""
        if not offsets:
            on_done(True, None)
            return
        refusal = self._parts.refusal()
        if refusal is not None:
            on_done(None, refusal)
            return
        began_ms = self._clock.monotonic_ms()
        spoken_by = self._parts.speaker()

        def on_committed(_done: bool | None, error: ClientError | None) -> None:
            now_ms = self._clock.monotonic_ms()
            if error is None:
                self._parts.on_committed(offsets, now_ms - began_ms)
                on_done(True, None)
                return
            self._parts.on_error(error, spoken_by)
            left_ms = timeout_ms - (now_ms - began_ms)
            stale = error.error_code is ErrorCode.STALE_MEMBER_EPOCH
            # The member is in the next epoch, or hears of it with its next heartbeat.
            pause_ms = 0.0 if self._parts.speaker() != spoken_by else self._backoff_ms
            if stale and left_ms > pause_ms:
                again = partial(self.commit, offsets, left_ms - pause_ms, on_done)
                self._timer.call_later(pause_ms, again)
            else:
                on_done(None, _explained(error, spoken_by, is_last=timeout_ms > 0))

        self._offsets.commit(spoken_by, offsets, timeout_ms, on_committed)

    # In the background

    def commit_later(self, offsets: Offsets, callback: CommitCallback | None) -> None:
        """Commit once, without trying again; `callback` runs within a later call of the user."""
        pending = _Pending(offsets, callback)
        self._pending.append(pending)

        def on_done(_done: bool | None, error: ClientError | None) -> None:
            pending.error = _cause(error)
            pending.is_done = True
            self._parts.on_change()

        self.commit(offsets, 0.0, on_done)

    def run_callbacks(self) -> None:
        """Run those of commits that have ended, as long as none before them is under way."""
        while self._pending and self._pending[0].is_done:
            pending = self._pending.popleft()
            if pending.callback is not None:
                pending.callback(pending.offsets, pending.error)
            elif pending.error is not None:
                _log.warning("a commit in the background failed: %s", pending.error)

    # By itself

    def next_auto_ms(self) -> float | None:
        """When, on the monotonic clock, the next automatic commit is due."""
        return self._next_auto_ms if self.is_auto else None

    def maybe_auto_commit(self) -> None:
        """Commit what earlier polls returned, if it is time."""
        now_ms = self._clock.monotonic_ms()
        if self._auto_interval_ms is None or now_ms < self._next_auto_ms:
            return
        self._next_auto_ms = now_ms + self._auto_interval_ms
        if self._auto_is_under_way or not self._parts.subscription.assignment:
            return
        if self._parts.refusal() is not None:
            return
        self._auto_is_under_way = True

        def on_done(_done: bool | None, error: ClientError | None) -> None:
            self._auto_is_under_way = False
            if error is None:
                return
            _log.warning("the automatic commit failed: %s", error)
            if error.retriable:
                soon_ms = self._clock.monotonic_ms() + self._backoff_ms
                self._next_auto_ms = min(self._next_auto_ms, soon_ms)

        self.commit(self.consumed(), 0.0, on_done)

    def commit_before(self, timeout_ms: float, on_done: Callable[[], None]) -> None:
        """Commit automatically before partitions are given up; a failure is only logged."""
        if not self.is_auto:
            on_done()
            return

        def on_committed(_done: bool | None, error: ClientError | None) -> None:
            if error is not None:
                _log.warning("the commit before partitions are given up failed: %s", error)
            on_done()

        self.commit(self.consumed(), timeout_ms, on_committed)


def _explained(error: ClientError, spoken_by: GroupGeneration, *, is_last: bool) -> ClientError:
    """Return what the user gets.

    Args:
        error: what the broker answered.
        spoken_by: who committed; without a member's id a consumer whose partitions are assigned by
            hand, which no rebalance can have thrown out.
        is_last: it was the last of several attempts, none of which was of a valid epoch.
    """
    codes = _EXPELLED | {ErrorCode.STALE_MEMBER_EPOCH} if is_last else _EXPELLED
    if isinstance(error, BrokerError) and error.error_code in codes:
        cause = None if spoken_by.member_id else error.detail or _HAS_MEMBERS
        failed = CommitFailedError(error.error_code, error.subject, cause)
        failed.__cause__ = error
        return failed
    return error


def _cause(error: ClientError | None) -> ClientError | None:
    """What a single attempt ended with, rather than that its time was over."""
    if isinstance(error, ClientTimeoutError) and isinstance(error.__cause__, ClientError):
        return error.__cause__
    return error
