"""The consumer as its group membership uses it: implements `MembershipHost`.

Callbacks of the user run only inside calls of the user. So when an asynchronous step ends, its
continuation is queued here and runs in the next round of `poll`.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from barnabas.client.config import ClientConfig
    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.connections.lookups import Coordinators
    from barnabas.client.consumer.assignment.fetch_collector import FetchCollector
    from barnabas.client.consumer.assignment.subscription import Subscription
    from barnabas.client.consumer.commits import Commits
    from barnabas.client.errors import ClientError
    from barnabas.client.group.membership import Membership, MembershipHost, OnHostDone
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["GroupHost", "GroupHostDependencies", "make_membership"]


def make_membership(
    cluster: Cluster, coordinators: Coordinators, config: ClientConfig, host: MembershipHost
) -> Membership:
    """Return a member of `group.id` for the configured `group.protocol`.

    Raises:
        ClientConfigError: The configured assignors do not support a common protocol.
    """
    if config.group_protocol == "consumer":
        from barnabas.client.group.consumer_protocol_membership import ConsumerProtocolMembership

        return ConsumerProtocolMembership(cluster, coordinators, config, host)
    from barnabas.client.group.classic_membership import ClassicMembership

    return ClassicMembership(cluster, coordinators, config, host)


class GroupHostDependencies(NamedTuple):
    """The objects of the consumer that a membership changes, and functions that it calls."""

    subscription: Subscription
    collector: FetchCollector
    commits: Commits
    # Runs a callback of the user and reports the exception or None. The report comes before the
    # function returns, or, for an `async def` callback, when its task has ended.
    run_callback: Callable[[Callable[[], object], OnHostDone], None]
    # Ends the wait of a poll.
    wake: Callable[[], None]
    # Called when the assignment has changed.
    on_assignment: Callable[[], None]


class GroupHost:
    """Implementation of `MembershipHost`; see there for the methods."""

    def __init__(self, cluster: Cluster, dependencies: GroupHostDependencies) -> None:
        self._cluster = cluster
        self._dependencies = dependencies
        self._subscription = dependencies.subscription
        # Continuations of asynchronous steps that have ended. Added by `schedule`, run by
        # `run_scheduled`.
        self._scheduled: deque[Callable[[], None]] = deque()
        # Whether the membership is ending. Only then are exceptions of callbacks stored in
        # `callback_error`: no poll would raise them.
        self.is_leaving = False
        # The first exception of a callback while leaving; the caller raises it at the end.
        self.callback_error: BaseException | None = None

    @property
    def subscribed_topics(self) -> Collection[str]:
        """Names of the subscribed topics."""
        return self._subscription.topics

    @property
    def subscribed_regex(self) -> str | None:
        """The pattern that the broker matches; None without one."""
        return self._subscription.regex

    @property
    def owned_partitions(self) -> Collection[TopicPartition]:
        """The current assignment."""
        return tuple(self._subscription.assignment)

    def run_scheduled(self) -> None:
        """Run the queued continuations; every round calls this on the user's thread."""
        while self._scheduled:
            self._scheduled.popleft()()

    def schedule(self, step: Callable[[], None]) -> None:
        """Queue `step` for the next `run_scheduled`, and wake the poll."""
        self._scheduled.append(step)
        self._dependencies.wake()

    def _end(self, on_done: OnHostDone, error: BaseException | None) -> None:
        self.schedule(partial(on_done, error))

    def refresh_pattern(self, on_done: OnHostDone) -> None:
        """Fetch the metadata of all topics and match the client-side pattern against it."""
        if self._subscription.pattern is None:
            on_done(None)
            return

        def on_refreshed(_none: None, error: ClientError | None) -> None:
            if error is None:
                self._subscription.match(self._cluster.metadata.topics.values())
                self._dependencies.on_assignment()
            self._end(on_done, error)

        self._cluster.refresh(None, on_refreshed)

    def commit_before_revoke(
        self, leaving: Collection[TopicPartition], on_done: OnHostDone
    ) -> None:
        """Commit the records that earlier polls returned, if automatic commits are on."""
        commits = self._dependencies.commits
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
                self._dependencies.collector.revoke(assignment[tp])

    def revoke(self, partitions: Collection[TopicPartition], on_done: OnHostDone) -> None:
        """Call `on_partitions_revoked`, then remove these partitions from the assignment."""
        listener = self._subscription.listener
        call = None if listener is None else partial(listener.on_partitions_revoked, partitions)
        self._remove(partitions, call, on_done)

    def lose(self, partitions: Collection[TopicPartition], on_done: OnHostDone) -> None:
        """Call `on_partitions_lost`, then remove partitions that other members may already own."""
        listener = self._subscription.listener
        call = None if listener is None else partial(listener.on_partitions_lost, partitions)
        self._remove(partitions, call, on_done)

    def _remove(
        self,
        partitions: Collection[TopicPartition],
        call: Callable[[], object] | None,
        on_done: OnHostDone,
    ) -> None:
        self._mark_revoking(partitions)

        def on_called(error: BaseException | None) -> None:
            gone = set(partitions)
            self._take([tp for tp in self._subscription.assignment if tp not in gone])
            self._finish(on_done, error)

        self._run(call, on_called)

    def assign(
        self,
        partitions: Collection[TopicPartition],
        added: Collection[TopicPartition],
        on_done: OnHostDone,
    ) -> None:
        """Set the whole assignment, then call `on_partitions_assigned` with the added ones."""
        self._take(partitions)
        for state in self._subscription.assignment.values():
            self._dependencies.collector.cancel_revocation(state)
        listener = self._subscription.listener
        call = None if listener is None else partial(listener.on_partitions_assigned, added)
        self._run(call, partial(self._finish, on_done))

    def _take(self, partitions: Collection[TopicPartition]) -> None:
        for state in self._subscription.assign_by_group(partitions):
            self._dependencies.collector.drop(state)
        self._dependencies.on_assignment()

    def _run(self, call: Callable[[], object] | None, on_called: OnHostDone) -> None:
        if call is None:
            on_called(None)
        else:
            self._dependencies.run_callback(call, on_called)

    def _finish(self, on_done: OnHostDone, error: BaseException | None) -> None:
        if self.is_leaving and self.callback_error is None:
            self.callback_error = error
        on_done(error)
        self._dependencies.wake()

    def wake(self) -> None:
        """End the wait of a poll."""
        self._dependencies.wake()
