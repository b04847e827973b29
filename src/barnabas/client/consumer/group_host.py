"""The consumer as its membership sees it: implements `MembershipHost`.

The user's callbacks run only inside of the user's calls. So a step that needs an answer does not go
on when that comes: it is noted, and goes on in the next round of poll.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from barnabas.client.cluster import Cluster
    from barnabas.client.consumer.commits import Commits
    from barnabas.client.consumer.record_buffer import RecordBuffer
    from barnabas.client.consumer.subscription import Subscription
    from barnabas.client.errors import ClientError
    from barnabas.client.group.membership import OnHostDone
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["GroupHost", "HostParts"]


class HostParts(NamedTuple):
    """What a membership moves."""

    subscription: Subscription
    buffer: RecordBuffer
    commits: Commits
    # Runs the user's code, then calls back with what it raised: before it returns, or when what the
    # code has left to be awaited has ended.
    run_callback: Callable[[Callable[[], object], OnHostDone], None]
    # Ends the wait of a poll.
    wake: Callable[[], None]
    # The assignment has changed.
    on_assignment: Callable[[], None]


class GroupHost:
    """See `MembershipHost`."""

    def __init__(self, cluster: Cluster, parts: HostParts) -> None:
        self._cluster = cluster
        self._parts = parts
        self._subscription = parts.subscription
        # Steps that have ended and go on in the next round.
        self._ended: deque[Callable[[], None]] = deque()
        # The membership is being ended, whose errors of callbacks nobody else raises.
        self.is_leaving = False
        # The first of them.
        self.callback_error: BaseException | None = None

    @property
    def subscribed_topics(self) -> Collection[str]:
        """Names of the topics wanted."""
        return self._subscription.topics

    @property
    def subscribed_regex(self) -> str | None:
        """A pattern that the broker matches."""
        return self._subscription.regex

    @property
    def owned_partitions(self) -> Collection[TopicPartition]:
        """The present assignment."""
        return tuple(self._subscription.assignment)

    def go_on(self) -> None:
        """Let steps that have ended go on: called in every round, on the user's thread."""
        while self._ended:
            self._ended.popleft()()

    def go_on_with(self, step: Callable[[], None]) -> None:
        """Have `step` run by the next `go_on`."""
        self._ended.append(step)
        self._parts.wake()

    def _end(self, on_done: OnHostDone, error: BaseException | None) -> None:
        self.go_on_with(partial(on_done, error))

    def refresh_pattern(self, on_done: OnHostDone) -> None:
        """Match the pattern against the metadata of all topics."""
        if self._subscription.pattern is None:
            on_done(None)
            return

        def on_refreshed(_none: None, error: ClientError | None) -> None:
            if error is None:
                self._subscription.match(self._cluster.metadata.topics.values())
                self._parts.on_assignment()
            self._end(on_done, error)

        self._cluster.refresh(None, on_refreshed)

    def commit_before_revoke(
        self, leaving: Collection[TopicPartition], on_done: OnHostDone
    ) -> None:
        """Commit what earlier polls returned, if auto commit is on."""
        commits = self._parts.commits
        if not commits.is_auto or not self._subscription.assignment:
            on_done(None)
            return
        self._mark_revoking(leaving)
        timeout_ms = self._cluster.config.default_api_timeout_ms
        commits.commit_before(timeout_ms, lambda: self._end(on_done, None))

    def _mark_revoking(self, partitions: Collection[TopicPartition]) -> None:
        assignment = self._subscription.assignment
        for tp in partitions:
            if tp in assignment:
                assignment[tp].is_revoking = True

    def revoke(self, partitions: Collection[TopicPartition], on_done: OnHostDone) -> None:
        """Give these up, in good order."""
        listener = self._subscription.listener
        call = None if listener is None else partial(listener.on_partitions_revoked, partitions)
        self._give_up(partitions, call, on_done)

    def lose(self, partitions: Collection[TopicPartition], on_done: OnHostDone) -> None:
        """Give these up; others may have them already."""
        listener = self._subscription.listener
        call = None if listener is None else partial(listener.on_partitions_lost, partitions)
        self._give_up(partitions, call, on_done)

    def _give_up(
        self,
        partitions: Collection[TopicPartition],
        call: Callable[[], object] | None,
        on_done: OnHostDone,
    ) -> None:
        self._mark_revoking(partitions)

        def on_called(error: BaseException | None) -> None:
            gone = set(partitions)
            self._take([tp for tp in self._subscription.assignment if tp not in gone])
            self._settle(on_done, error)

        self._run(call, on_called)

    def assign(
        self,
        partitions: Collection[TopicPartition],
        added: Collection[TopicPartition],
        on_done: OnHostDone,
    ) -> None:
        """Take these as the whole assignment."""
        self._take(partitions)
        for position in self._subscription.assignment.values():
            # It was to be given up, and then it was not.
            position.is_revoking = False
        listener = self._subscription.listener
        call = None if listener is None else partial(listener.on_partitions_assigned, added)
        self._run(call, partial(self._settle, on_done))

    def _take(self, partitions: Collection[TopicPartition]) -> None:
        for tp in self._subscription.assign_by_group(partitions):
            self._parts.buffer.drop(tp)
        self._parts.on_assignment()

    def _run(self, call: Callable[[], object] | None, on_called: OnHostDone) -> None:
        if call is None:
            on_called(None)
        else:
            self._parts.run_callback(call, on_called)

    def _settle(self, on_done: OnHostDone, error: BaseException | None) -> None:
        if self.is_leaving and self.callback_error is None:
            self.callback_error = error
        on_done(error)
        self._parts.wake()

    def wake(self) -> None:
        """End the wait of a poll."""
        self._parts.wake()
