"""Interfaces between a consumer and its group membership, and the steps in a member's polls.

A membership runs on the consumer's event loop. Timers send its heartbeats whether or not the user
polls. Joins, revocations and assignments take place only inside `poll`, on the user's thread,
because they run the user's callbacks. The membership calls its consumer through `MembershipHost`.

A step of a poll calls the host, which may need several polls to finish it: it commits, or it runs a
callback of the user. The next step starts only after the current step has ended. `PollWatch`
reports that the user does not poll (max.poll.interval.ms, KIP-62).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from barnabas.client.errors import ClientError
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.runtime.clock import Cancellable
    from barnabas.runtime.loop import Runtime


__all__ = [
    "AssignmentSteps",
    "GroupGeneration",
    "Membership",
    "MembershipHost",
    "OnHostDone",
    "PollSteps",
    "PollWatch",
]

# Called exactly once at the end of a host's step, with the exception of the user's callback or
# None.
OnHostDone: TypeAlias = Callable[[BaseException | None], None]


class GroupGeneration(NamedTuple):
    """A member and its generation, which commits contain; captured when a call begins."""

    group_id: str
    # Generation id of a classic group, or member epoch of a KIP-848 group; -1 without a membership.
    generation_id: int = -1
    member_id: str = ""
    instance_id: str | None = None
    # Whether `generation_id` is a member epoch (KIP-848), which OffsetFetch requests contain too.
    is_epoch: bool = False


class MembershipHost(Protocol):
    """Interface of the consumer for its membership.

    The methods with an `on_done` run code of the user, or change the assignment. They are called
    only inside `Membership.poll` and `Membership.leave`.
    """

    @property
    def subscribed_topics(self) -> Collection[str]:
        """Names of the subscribed topics; for a pattern, as last matched."""
        ...

    @property
    def subscribed_regex(self) -> str | None:
        """The pattern that the broker matches (KIP-848); None without one."""
        ...

    @property
    def owned_partitions(self) -> Collection[TopicPartition]:
        """The current assignment."""
        ...

    def refresh_pattern(self, on_done: OnHostDone) -> None:
        """Match the pattern against fresh metadata before a join; without one, end at once."""
        ...

    def commit_before_revoke(
        self, leaving: Collection[TopicPartition], on_done: OnHostDone
    ) -> None:
        """Commit the records that earlier polls returned, if automatic commits are on.

        From then on no records of `leaving` are returned to the user; otherwise the next owner
        would return them again.
        """
        ...

    def revoke(self, partitions: Collection[TopicPartition], on_done: OnHostDone) -> None:
        """Stop returning records, run the user's callback, then remove the partitions."""
        ...

    def lose(self, partitions: Collection[TopicPartition], on_done: OnHostDone) -> None:
        """Remove partitions that other members may own already; commits are not possible."""
        ...

    def assign(
        self,
        partitions: Collection[TopicPartition],
        added: Collection[TopicPartition],
        on_done: OnHostDone,
    ) -> None:
        """Set `partitions` as the whole assignment, then run the user's callback with `added`."""
        ...

    def wake(self) -> None:
        """End the wait of `poll`, because the membership needs another call of `poll`."""
        ...


class Membership(Protocol):
    """Interface of a group membership. `poll` raises the errors that the user must handle."""

    @property
    def generation(self) -> GroupGeneration:
        """The current member and generation, which commits contain."""
        ...

    @property
    def is_stable(self) -> bool:
        """Whether the assignment is valid and the coordinator accepts commits of this generation.

        This is also true while partitions are given up before the next join, so that their offsets
        can be committed.
        """
        ...

    def poll(self) -> None:
        """Advance the membership without waiting; record that the user polls.

        Raises:
            ClientError: An error that is not retriable (fenced, not authorized, no common assignor,
                ...).
            BaseException: A callback of the user raised this exception.
        """
        ...

    def next_deadline_ms(self) -> float | None:
        """Return when `poll` must be called again (ms, monotonic clock), or None."""
        ...

    def on_subscription_changed(self) -> None:
        """Handle a change of the topics, the pattern, or a topic's number of partitions."""
        ...

    def request_rejoin(self, reason: str) -> None:
        """Rejoin with the next `poll` (enforceRebalance)."""
        ...

    def on_commit_error(self, error: ClientError, sent_by: GroupGeneration) -> None:
        """Handle a refused commit of that generation.

        UNKNOWN_MEMBER_ID and similar errors mean a rejoin.
        """
        ...

    def leave(self, reason: str, on_done: Callable[[], None]) -> None:
        """Leave the group (except a static member) and stop; `on_done` follows the response."""
        ...

    def stop(self) -> None:
        """Stop at once without a request to the broker: cancel timers and ignore responses."""
        ...


class AssignmentSteps:
    """Changes the host's partitions; each step calls `on_done` at its end, possibly at once."""

    __slots__ = ("_host",)

    def __init__(self, host: MembershipHost) -> None:
        self._host = host

    @property
    def owned(self) -> list[TopicPartition]:
        """The current assignment, in order."""
        return sorted(self._host.owned_partitions)

    def removed_by(self, assigned: Collection[TopicPartition]) -> list[TopicPartition]:
        """Return the owned partitions that a new assignment does not contain, in order."""
        return sorted(set(self._host.owned_partitions).difference(assigned))

    def assign(self, assigned: Collection[TopicPartition], on_done: OnHostDone) -> None:
        """Set the whole assignment; the user's callback receives the partitions that are new."""
        owned = set(self._host.owned_partitions)
        self._host.assign(assigned, [tp for tp in assigned if tp not in owned], on_done)

    def lose_all(self, on_done: OnHostDone) -> None:
        """Remove all partitions, because other members may own them already."""
        owned = self.owned
        if owned:
            self._host.lose(owned, on_done)
        else:
            on_done(None)

    def give_up_all(self, on_done: OnHostDone, *, is_member: bool) -> None:
        """Remove all partitions before the member leaves.

        Args:
            on_done: Called at the end of the step.
            is_member: Whether the partitions still belong to the member, so that the user's
                callback can commit their offsets.
        """
        owned = self.owned
        if owned and is_member:
            self._host.revoke(owned, on_done)
        else:
            self.lose_all(on_done)


class PollSteps:
    """The steps of one membership.

    Args:
        wake: Ends the wait of the host's poll.
    """

    __slots__ = ("_continuation", "_depth", "_wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        # Called at the end of the current step; set by `start`, removed at the end of the step and
        # by `stop`. None if no step is in progress. Invariant: at most one step is in progress.
        self._continuation: OnHostDone | None = None
        # Number of `run` calls that have not returned; above 0 the host need not be woken.
        self._depth = 0

    @property
    def is_in_progress(self) -> bool:
        """Whether a step has started and not ended."""
        return self._continuation is not None

    def run(self, advance: Callable[[], bool]) -> None:
        """Call `advance` until it returns False or has started a step that is not done at once."""
        self._depth += 1
        try:
            while self._continuation is None and advance():
                pass
        finally:
            self._depth -= 1

    def start(self, step: Callable[[OnHostDone], None], continuation: OnHostDone) -> None:
        """Start a step.

        Args:
            step: Starts the step; calls its argument at the end of the step, possibly at once.
            continuation: Called then with the exception of the step or None.
        """
        assert self._continuation is None, "a step of the membership is in progress already"
        self._continuation = continuation

        def on_done(error: BaseException | None) -> None:
            # After `stop` the result of the step is ignored.
            if self._continuation is continuation:
                self._continuation = None
                continuation(error)
                self.wake()

        step(on_done)

    def stop(self) -> None:
        """Ignore the result of the current step."""
        self._continuation = None

    def wake(self) -> None:
        """End the wait of the host's poll; does nothing inside `run`."""
        if not self._depth:
            self._wake()


class PollWatch:
    """Reports that the user has not polled for max.poll.interval.ms, between `start` and `stop`.

    Args:
        runtime: Provides clock and timers.
        max_interval_ms: Longest time between two polls (ms).
        on_missed: Called once, after which the watch is stopped.
    """

    __slots__ = ("_clock", "_last_ms", "_max_interval_ms", "_on_missed", "_timer", "_timers")

    def __init__(
        self, runtime: Runtime, max_interval_ms: float, on_missed: Callable[[], None]
    ) -> None:
        self._clock = runtime.clock
        self._timers = runtime.timer
        self._max_interval_ms = max_interval_ms
        self._on_missed = on_missed
        # Time of the last poll (ms, monotonic clock); moved by `on_poll`, never back.
        self._last_ms = self._clock.monotonic_ms()
        # Checks the interval; None while stopped.
        self._timer: Cancellable | None = None

    @property
    def last_ms(self) -> float:
        """Time of the last poll (ms, monotonic clock)."""
        return self._last_ms

    @property
    def is_missed(self) -> bool:
        """Whether max.poll.interval.ms has passed since the last poll."""
        return self._clock.monotonic_ms() >= self._last_ms + self._max_interval_ms

    def on_poll(self) -> None:
        """Record that the user polls."""
        self._last_ms = self._clock.monotonic_ms()

    def start(self) -> None:
        """Start the supervision, from the time of the last poll."""
        self.stop()
        due_ms = self._last_ms + self._max_interval_ms
        delay_ms = max(0.0, due_ms - self._clock.monotonic_ms())
        self._timer = self._timers.call_later(delay_ms, self._on_timer)

    def stop(self) -> None:
        """Stop the supervision; does nothing if it is stopped."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        if not self.report_if_missed():
            self.start()

    def report_if_missed(self) -> bool:
        """Stop and call `on_missed` if the interval has passed; return whether it has."""
        if not self.is_missed:
            return False
        self.stop()
        self._on_missed()
        return True
