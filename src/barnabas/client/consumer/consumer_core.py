"""The core of both consumers: no thread, no await and no waiting.

A consumer class calls `round` and `take` until there are records or its timeout passes. In between
it waits until `is_awake`, which callbacks on the event loop set. All code of the user runs inside
`round`, `take` and the other methods that the consumer class calls.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.client.consumer.assignment.fetch_collector import CollectedRecords, FetchCollector
from barnabas.client.consumer.assignment.positions import PositionDependencies, Positions
from barnabas.client.consumer.assignment.subscription import (
    SubscribedTopics,
    Subscription,
    SubscriptionKind,
    SubscriptionPattern,
)
from barnabas.client.consumer.assignment.topic_partition_state import OffsetReset
from barnabas.client.consumer.commits import CommitDependencies, Commits
from barnabas.client.consumer.consumer_metrics import ConsumerMetrics
from barnabas.client.consumer.consumer_records import ConsumerRecords
from barnabas.client.consumer.errors import (
    CommitFailedError,
    InvalidGroupIdError,
    SubscriptionError,
    WakeupError,
)
from barnabas.client.consumer.group_host import GroupHost, GroupHostDependencies, make_membership
from barnabas.client.consumer.partition_records import PartitionRecords
from barnabas.client.errors import ClientError, CorruptRecordsError, broker_error
from barnabas.client.fetch.fetcher import Fetcher, ReaderOptions
from barnabas.client.group.group_offsets import CommittedOffset, GroupOffsets
from barnabas.client.group.membership import GroupGeneration
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.connections.lookups import Coordinators
    from barnabas.client.consumer.assignment.subscription import RebalanceListener, Topics
    from barnabas.client.consumer.commits import CommitCallback
    from barnabas.client.consumer.user_objects import UserObjects
    from barnabas.client.errors import RecordDeserializationError
    from barnabas.client.group.membership import Membership, OnHostDone
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["ConsumerCore"]

_NO_MEMBER = (
    "this consumer is not a member of the group: poll until its partitions are assigned, then "
    "commit"
)


class ConsumerCore:
    """Subscription, positions, fetching, commits and membership of one consumer.

    Args:
        cluster: The connections, used by this consumer only.
        coordinators: Finds group coordinators over the same connections.
        user_objects: The user's deserializers and interceptors.
        run_callback: Runs callbacks of the user; see `GroupHostDependencies`.
    """

    def __init__(
        self,
        cluster: Cluster,
        coordinators: Coordinators,
        user_objects: UserObjects,
        run_callback: Callable[[Callable[[], object], OnHostDone], None],
    ) -> None:
        config = cluster.config
        self.config = config
        self._cluster = cluster
        self._coordinators = coordinators
        self._user_objects = user_objects
        self._clock = cluster.runtime.clock
        self.metrics = ConsumerMetrics(self._clock)
        # Whether an event occurred that the next round has to handle. Set by `wake`, cleared by
        # `round`; a waiting call ends when it becomes true.
        self.is_awake = False
        # Called by `wake` on the event loop.
        self.on_wake: Callable[[], None] = _nothing
        # Set by `wakeup`, from any thread; the next round raises `WakeupError` and clears it.
        self.is_wakeup_wanted = False
        # Value of `fetcher.requests_sent` at the last call of `has_sent_fetches`.
        self._fetches_seen = 0
        self.subscription = Subscription(exclude_internal=config.exclude_internal_topics)
        # The group membership; set by `subscribe`, None without a group subscription.
        self.membership: Membership | None = None
        options = ReaderOptions(
            config.client_rack or "",
            True,
            self._on_fetch_stopped,
            self.metrics.on_fetch,
            keeps_views=True,
        )
        assignment = self.subscription.assignment
        self.fetcher = Fetcher(cluster, assignment, self.wake, options)
        self.collector = FetchCollector(self.fetcher, assignment)
        self.offsets = GroupOffsets(cluster, coordinators)
        self.commits = self._make_commits()
        self.positions = Positions(
            cluster,
            PositionDependencies(
                self.subscription,
                self.fetcher,
                self.collector,
                self._read_committed if config.group_id else None,
                self.wake,
            ),
            OffsetReset.parse(config.auto_offset_reset),
        )
        self.topics = SubscribedTopics(cluster, self.subscription, self._on_topics_changed)
        self.host = GroupHost(
            cluster,
            GroupHostDependencies(
                self.subscription,
                self.collector,
                self.commits,
                run_callback,
                self.wake,
                self.topics.track,
            ),
        )

    def _make_commits(self) -> Commits:
        config = self.config
        auto = config.enable_auto_commit and config.group_id
        dependencies = CommitDependencies(
            self.subscription,
            lambda: self.generation,
            self._commit_refusal,
            self._on_commit_error,
            self._on_committed,
            self.wake,
        )
        interval_ms = float(config.auto_commit_interval_ms) if auto else None
        return Commits(self._cluster, self.offsets, dependencies, interval_ms)

    # Events

    def wake(self) -> None:
        """Mark the consumer as awake and end the wait of the current call."""
        self.is_awake = True
        self.on_wake()

    def _on_fetch_stopped(self, tp: TopicPartition) -> None:
        self.positions.on_changed(tp)

    def _on_topics_changed(self) -> None:
        if self.membership is not None:
            self.membership.on_subscription_changed()
        self.wake()

    def _commit_refusal(self) -> ClientError | None:
        """Return why the consumer cannot commit now, or None.

        A member that the group has removed must not commit as if the group had no members.
        """
        membership = self.membership
        if membership is None:
            return None
        subject = f"commit of group {self.group_id}"
        if membership.generation.generation_id < 0:
            # If partitions are still assigned, they belong to a membership that the consumer has
            # lost.
            cause = None if self.subscription.assignment else _NO_MEMBER
            return CommitFailedError(ErrorCode.UNKNOWN_MEMBER_ID, subject, cause)
        if self.config.group_protocol == "classic" and not membership.is_stable:
            return broker_error(ErrorCode.REBALANCE_IN_PROGRESS, subject)
        return None

    def _on_commit_error(self, error: ClientError, committed_by: GroupGeneration) -> None:
        if self.membership is not None:
            self.membership.on_commit_error(error, committed_by)

    def _on_committed(
        self, offsets: dict[TopicPartition, CommittedOffset], latency_ms: float
    ) -> None:
        self.metrics.on_commit(latency_ms)
        self._user_objects.interceptors.on_commit(offsets)

    # The group

    @property
    def generation(self) -> GroupGeneration:
        """The member and generation on whose behalf this consumer commits."""
        if self.membership is not None:
            return self.membership.generation
        return GroupGeneration(self.group_id, instance_id=self.config.group_instance_id)

    @property
    def group_id(self) -> str:
        """The group's id.

        Raises:
            InvalidGroupIdError: `group.id` is missing or blank.
        """
        group_id = self.config.group_id
        if group_id is None or not group_id.strip():
            raise InvalidGroupIdError(
                "group.id is missing or blank: subscriptions and commits require a "
                "group; without a group, use assign()"
            )
        return group_id

    def _read_committed(
        self,
        partitions: list[TopicPartition],
        on_done: Callable[[dict[TopicPartition, CommittedOffset] | None, ClientError | None], None],
    ) -> None:
        timeout_ms = self.config.default_api_timeout_ms
        self.offsets.committed(lambda: self.generation, partitions, timeout_ms, on_done)

    # Subscription

    def subscribe(self, topics: Topics, listener: RebalanceListener | None) -> None:
        """Subscribe to topics, so that the group assigns their partitions.

        Raises:
            InvalidGroupIdError: `group.id` is missing or blank.
            SubscriptionError: The topics are None or blank, a subscription of another kind exists,
                or the group protocol does not support the pattern.
            ClientConfigError: The configured assignors are missing or do not support a common
                protocol.
        """
        _ = self.group_id
        self._check_not_leaving()
        is_for_broker = isinstance(topics, SubscriptionPattern)
        if is_for_broker and self.config.group_protocol == "classic":
            raise SubscriptionError(
                "subscribe: brokers match a SubscriptionPattern only with "
                "group.protocol=consumer: set it, or give a compiled `re`"
            )
        kind = self.subscription.kind
        if kind is SubscriptionKind.MANUAL or self.membership is None:
            membership = make_membership(self._cluster, self._coordinators, self.config, self.host)
            self.subscription.subscribe(topics, listener)
            self.membership = membership
        else:
            self.subscription.subscribe(topics, listener)
        self._hold_unsubscribed()
        self.topics.refresh()
        self.membership.on_subscription_changed()

    def _check_not_leaving(self) -> None:
        """Raise while partitions are being revoked, which would discard a new subscription."""
        if self.host.is_leaving:
            raise SubscriptionError(
                "the consumer is revoking its partitions: subscribe when unsubscribe() has ended"
            )

    def _hold_unsubscribed(self) -> None:
        """Hold back partitions of topics that are no longer subscribed to."""
        if self.subscription.kind is SubscriptionKind.TOPICS:
            for tp, state in self.subscription.assignment.items():
                if tp.topic not in self.subscription.topics:
                    self.collector.revoke(state)

    def assign(self, partitions: Iterable[tuple[str, int]] | None) -> None:
        """Assign exactly these partitions by hand.

        Raises:
            SubscriptionError: The partitions are None, a topic is blank, or the consumer is
                subscribed to topics.
        """
        self._check_not_leaving()
        for state in self.subscription.assign_by_hand(partitions):
            self.collector.drop(state)
        self.topics.track()
        self.topics.refresh()

    def unsubscribe(self, reason: str, on_done: Callable[[], None]) -> None:
        """Leave the group and revoke all partitions.

        Args:
            reason: The reason that is sent to the coordinator.
            on_done: Called when the consumer has left; possibly before this method returns.
        """

        membership = self.membership

        def on_left() -> None:
            # Skip this if the leave timed out and the caller has already ended the subscription.
            if self.membership is membership:
                self.end_subscription()
            on_done()
            self.wake()

        if membership is None:
            on_left()
        else:
            # The member keeps its generation until it has left, so that callbacks can commit.
            self.host.is_leaving = True
            membership.leave(reason, on_left)

    def end_subscription(self) -> None:
        """End subscription, assignment and membership at once, without callbacks or requests."""
        if self.membership is not None:
            self.membership.stop()
            self.membership = None
        self.host.is_leaving = False
        for state in self.subscription.unsubscribe():
            self.collector.drop(state)
        self.topics.track()

    # Poll

    def begin_poll(self) -> None:
        """Check that there is something to poll, and record the start of the poll in the metrics.

        Raises:
            SubscriptionError: The consumer has neither a subscription nor an assignment.
        """
        if self.subscription.kind is SubscriptionKind.NONE:
            raise SubscriptionError(
                "nothing to poll: subscribe() to topics or assign() partitions first"
            )
        self.metrics.on_poll_begin()

    def round(self) -> None:
        """Advance topics, commits, membership and positions by one step, without waiting.

        Raises:
            WakeupError: `wakeup` was called.
            ClientError: An error that the user has to handle.
            BaseException: A callback of the user raised this exception.
        """
        self.is_awake = False
        self.check_wakeup()
        self.topics.check()
        self.topics.maybe_refresh()
        self.commits.run_callbacks()
        self.host.run_scheduled()
        if self.membership is not None and not self.host.is_leaving:
            self.membership.poll()
        self.positions.update()
        self.commits.maybe_auto_commit()

    def check_wakeup(self) -> None:
        """Raise `WakeupError` if `wakeup` was called since the last check."""
        if self.is_wakeup_wanted:
            self.is_wakeup_wanted = False
            raise WakeupError("wakeup() was called")

    def next_deadline_ms(self) -> float:
        """Return when a waiting poll must call `round` again (ms, monotonic clock)."""
        due = [self.topics.next_refresh_ms(), self.commits.next_auto_ms()]
        if self.membership is not None:
            due.append(self.membership.next_deadline_ms())
        return min((moment for moment in due if moment is not None), default=float("inf"))

    def take(self, limit: int) -> ConsumerRecords | None:
        """Return up to `limit` records; None if there are none and no position moved.

        After positions have moved, nothing is raised. Sends fetch requests for the buffer space
        that this frees.

        Raises:
            ClientError: A partition cannot be read further, or its next record cannot be
                deserialized.
        """
        collected = self.collector.take(limit)
        if collected.failure is not None:
            tp, error = collected.failure
            user_error = self.positions.on_failure(tp, error)
            if user_error is not None:
                raise user_error
            self.is_awake = True
            return None
        if not collected.has_moved:
            return None
        records = self._records(collected)
        self.fetcher.send_fetches()
        return self._user_objects.interceptors.on_consume(records)

    def _records(self, collected: CollectedRecords) -> ConsumerRecords:
        parts = {tp: PartitionRecords(tp, pieces) for tp, pieces in collected.pieces.items()}
        if self._user_objects.deserializing.is_needed:
            parts = self._deserialized(parts)
        assignment = self.subscription.assignment
        next_offsets = {
            tp: CommittedOffset(assignment[tp].offset, assignment[tp].epoch) for tp in parts
        }
        size = sum(
            piece.batch.span.end - piece.batch.span.start
            for part in parts.values()
            for piece in part.pieces
        )
        records = ConsumerRecords(parts, next_offsets)
        self.metrics.on_records(len(records), size)
        return records

    def _deserialized(
        self, parts: dict[TopicPartition, PartitionRecords]
    ) -> dict[TopicPartition, PartitionRecords]:
        done: dict[TopicPartition, PartitionRecords] = {}
        undone: dict[TopicPartition, int] = {}
        first_error: RecordDeserializationError | CorruptRecordsError | None = None
        for tp, part in parts.items():
            made, error = self._deserialize(part)
            if made:
                done[tp] = made
            if error is not None:
                undone[tp] = len(part) - len(made)
                if not made and first_error is None:
                    first_error = error
        if first_error is not None:
            self.collector.give_back({tp: len(part) for tp, part in parts.items()})
            raise first_error
        if undone:
            self.collector.give_back(undone)
        return done

    def _deserialize(
        self, part: PartitionRecords
    ) -> tuple[PartitionRecords, RecordDeserializationError | CorruptRecordsError | None]:
        apply = self._user_objects.deserializing.apply
        try:
            return apply(part)
        except CorruptRecordsError as corrupt:
            made, error = apply(part.before(corrupt.offset))
            return made, error or corrupt

    def has_sent_fetches(self) -> bool:
        """Return whether fetch requests were sent since the last call of this method."""
        before, self._fetches_seen = self._fetches_seen, self.fetcher.requests_sent
        return before != self._fetches_seen

    def commit_async(
        self, offsets: dict[TopicPartition, CommittedOffset] | None, callback: CommitCallback | None
    ) -> None:
        """Commit asynchronously.

        Args:
            offsets: The offsets by partition; None for all positions.
            callback: Called with the offsets and an error or None, during a later call of the user.

        Raises:
            InvalidGroupIdError: `group.id` is missing or blank.
        """
        _ = self.group_id
        wanted = self.commits.consumed() if offsets is None else offsets
        self.commits.commit_later(wanted, callback)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop handing out records of these partitions until `resume`.

        Raises:
            SubscriptionError: A partition is not assigned; no partition is paused.
        """
        for state in [self.subscription.partition(tp) for tp in partitions]:
            self.collector.pause(state)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `pause`.

        Raises:
            SubscriptionError: A partition is not assigned; no partition is resumed.
        """
        for state in [self.subscription.partition(tp) for tp in partitions]:
            self.collector.resume(state)

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return {tp for tp, state in self.subscription.assignment.items() if state.is_paused}

    # Reasons why no records arrive

    @property
    def trouble(self) -> ClientError | None:
        """Error of a broker that does not respond; None while all needed brokers do."""
        return self.fetcher.trouble or self._cluster.outage

    @property
    def unreachable(self) -> ClientError | None:
        """The most specific known reason why the cluster is unreachable; None if there is none."""
        return self._cluster.unreachable or self._cluster.outage

    # Positions and lag

    def lag(self, tp: TopicPartition) -> int | None:
        """Return the number of records between position and log end, as of the last fetch.

        Returns:
            The lag; None while it is unknown.

        Raises:
            SubscriptionError: The partition is not assigned.
        """
        state = self.subscription.partition(tp)
        is_committed = self.config.isolation_level == "read_committed"
        end = state.last_stable_offset if is_committed else state.high_watermark
        return None if end is None or not state.has_position else max(0, end - state.offset)

    def lags(self) -> dict[TopicPartition, int]:
        """Return the lag of each assigned partition whose lag is known."""
        found = {tp: self.lag(tp) for tp in self.subscription.assignment}
        return {tp: lag for tp, lag in found.items() if lag is not None}

    # Closing

    def begin_close(self, timeout_ms: float, on_done: Callable[[], None]) -> None:
        """Commit if automatic commits are on, leave the group and end the fetch sessions.

        Args:
            timeout_ms: The limit of the commit (ms).
            on_done: Called at the end; possibly before this method returns.
        """

        def on_ended() -> None:
            on_done()
            self.wake()

        on_left = partial(self.fetcher.end_sessions, on_ended)
        leave = partial(self.unsubscribe, "the consumer is being closed", on_left)
        if self.subscription.assignment and self.commits.is_auto:
            # Leaving runs callbacks of the user, so it starts in a round and not on the event loop.
            self.commits.commit_before(timeout_ms, lambda: self.host.schedule(leave))
        else:
            leave()

    def stop(self) -> None:
        """Discard everything that is still in progress, and close the interceptors."""
        self.end_subscription()
        self.topics.stop()
        self.fetcher.close()
        self._user_objects.interceptors.close()


def _nothing() -> None:
    pass
