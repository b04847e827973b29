"""Base of the blocking and the asyncio consumer: all calls but those that read records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from barnabas.client.config import ClientConfig, keys_with_servers
from barnabas.client.consumer import consumer_plans
from barnabas.client.consumer.assignment.subscription import Subscription
from barnabas.client.consumer.assignment.topic_partition_state import OffsetReset
from barnabas.client.consumer.commits import as_offsets
from barnabas.client.consumer.user_objects import UserObjects, take_user_objects
from barnabas.client.errors import ClientConfigError
from barnabas.client.session.plans import PlanMethod
from barnabas.client.topic_partition import (
    TopicPartition,
    as_partition,
    as_partitions,
    flat_partitions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.consumer.assignment.subscription import RebalanceListener, Topics
    from barnabas.client.consumer.commits import CommitCallback
    from barnabas.client.consumer.consumer_calls import ConsumerCalls, ConsumerIterator
    from barnabas.client.consumer.consumer_core import ConsumerCore
    from barnabas.client.errors import ClientError
    from barnabas.client.group.group_offsets import CommittedOffset
    from barnabas.client.group.membership import GroupGeneration
    from barnabas.client.topic_partition import K

    Partition = tuple[str, int]
    Partitions = Partition | Iterable[Partition]

__all__ = ["CLOSE_S", "MS_PER_S", "ConsumerBase", "consumer_config"]

MS_PER_S = 1000.0
# Default timeout of `close` (s).
CLOSE_S = 30.0
# Upper limit of the time (ms) between two turns of the event loop while polls are served from the
# buffer.
_LOOP_INTERVAL_MS = 5.0
# Keys that Kafka's consumers refuse, because only share consumers have them.
_SHARE_ONLY = ("share_acknowledgement_mode", "share_acquire_mode")


def consumer_config(
    bootstrap_servers: str | Sequence[str] | None,
    given: Mapping[str, Any],
    *,
    may_block: bool = True,
) -> tuple[ClientConfig, UserObjects]:
    """Return a consumer's keyword arguments as a checked config and the user's objects.

    Args:
        bootstrap_servers: As given to the consumer.
        given: All other keyword arguments.
        may_block: Whether deserializers may block; see `take_user_objects`.

    Raises:
        ClientConfigError: A key is unknown or its value is invalid.
    """
    parts, keys = take_user_objects(given, may_block=may_block)
    for key in keys:
        if key.replace(".", "_") in _SHARE_ONLY:
            raise ClientConfigError(
                f"{key} has a meaning for share consumers only: leave it out, or use ShareConsumer"
            )
    config = ClientConfig.parse(keys_with_servers(bootstrap_servers, keys))
    OffsetReset.parse(config.auto_offset_reset)
    return config, parts


class ConsumerBase(ABC):
    """Base of `barnabas.Consumer` and `barnabas.aio.Consumer`."""

    def __init__(
        self,
        core: ConsumerCore,
        iterator: ConsumerIterator,
        calls: ConsumerCalls,
    ) -> None:
        # The validated configuration.
        self.config = core.config
        self._core = core
        self._iterator = iterator
        self._entry = calls
        self._limit = core.config.max_poll_records
        self._clock = calls.clock
        # When the event loop last ran for a poll that did not wait (ms, monotonic clock).
        self._loop_ran_ms = 0.0

    def __repr__(self) -> str:
        servers = ",".join(f"{host}:{port}" for host, port in self.config.bootstrap_servers)
        return f"Consumer({servers!r}, group_id={self.config.group_id!r})"

    def _must_run_loop(self) -> bool:
        """Return whether the event loop must run now, so that pending fetch requests are sent."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._loop_ran_ms < _LOOP_INTERVAL_MS and not self._core.has_sent_fetches():
            return False
        self._loop_ran_ms = now_ms
        return True

    def _iteration_s(self) -> float:
        """Return how long (s) one poll of an iteration waits for records."""
        limit_ms = self.config.consumer_timeout_ms
        return CLOSE_S if limit_ms < 0 else limit_ms / MS_PER_S

    def wakeup(self) -> None:
        """Make the current call, or the next call that waits, raise `WakeupError`.

        Safe from any thread and from signal handlers.
        """
        self._core.is_wakeup_wanted = True
        self._entry.wakeup()

    # Subscription

    def subscribe(
        self,
        topics: Topics = None,
        listener: RebalanceListener | None = None,
        *,
        pattern: str | None = None,
    ) -> None:
        """Subscribe to topics, so that the group assigns their partitions; replace earlier topics.

        Args:
            topics: One name, several names, a compiled `re` that the client matches against the
                full name of every topic, or a `SubscriptionPattern` that the broker matches. An
                empty collection means `unsubscribe`.
            listener: Called when partitions are assigned, revoked or lost.
            pattern: A regular expression, in place of `topics`.

        Raises:
            SubscriptionError: The topics are None, a name is blank, or there is a subscription of
                another kind: topics, patterns and partitions are mutually exclusive.
            InvalidGroupIdError: `group_id` is missing.
        """
        wanted = Subscription.wanted(topics, pattern)
        with self._entry:
            if wanted == ():
                self._end_subscription()
            else:
                self._core.subscribe(wanted, listener)

    @abstractmethod
    def _end_subscription(self) -> None:
        """Handle `subscribe` or `assign` with an empty collection, like `unsubscribe`."""

    def assign(self, partitions: Iterable[Partition] | None) -> None:
        """Assign exactly these partitions, without group management.

        Args:
            partitions: (topic, number) pairs. An empty collection means `unsubscribe`.

        Raises:
            SubscriptionError: The partitions are None, a topic is blank, or the consumer is
                subscribed to topics.
        """
        wanted = None if partitions is None else as_partitions(partitions)
        with self._entry:
            if wanted == []:
                self._end_subscription()
            else:
                self._core.assign(wanted)

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that are assigned to this consumer now."""
        with self._entry:
            return set(self._core.subscription.assignment)

    def subscription(self) -> set[str]:
        """Return the subscribed topics; for a pattern, the topics that it last matched."""
        with self._entry:
            return set(self._core.subscription.topics)

    unsubscribe = PlanMethod(consumer_plans.unsubscribe)

    # Positions

    position = PlanMethod(consumer_plans.position)
    seek_to_time = PlanMethod(consumer_plans.seek_to_time)

    def seek(self, partition: Partition, offset: int | CommittedOffset) -> None:
        """Continue at `offset` with the next poll.

        Args:
            partition: An assigned partition, as (topic, number).
            offset: Offset of the next record, or a `CommittedOffset` with a leader epoch to
                validate.

        Raises:
            SubscriptionError: The partition is not assigned.
            ValueError: The offset is negative.
        """
        [(tp, wanted)] = as_offsets({partition: offset}).items()
        with self._entry:
            self._core.positions.seek(tp, wanted.offset, wanted.leader_epoch)

    def seek_to_beginning(self, *partitions: Partitions) -> None:
        """Continue at the first available record of these partitions, or of all assigned ones.

        Raises:
            SubscriptionError: A partition is not assigned.
        """
        self._reset(partitions, OffsetReset.earliest())

    def seek_to_end(self, *partitions: Partitions) -> None:
        """Continue after the last record of these partitions, or of all assigned partitions.

        Raises:
            SubscriptionError: A partition is not assigned.
        """
        self._reset(partitions, OffsetReset.latest())

    def _reset(self, partitions: Iterable[Partitions], reset: OffsetReset) -> None:
        with self._entry:
            for tp in flat_partitions(partitions) or list(self._core.subscription.assignment):
                self._core.positions.reset(tp, reset)

    def pause(self, *partitions: Partitions) -> None:
        """Stop returning records of these partitions until `resume`; they stay assigned.

        Raises:
            SubscriptionError: A partition is not assigned.
        """
        with self._entry:
            self._core.pause(flat_partitions(partitions))

    def resume(self, *partitions: Partitions) -> None:
        """Return records of these partitions again, after `pause`.

        Raises:
            SubscriptionError: A partition is not assigned.
        """
        with self._entry:
            self._core.resume(flat_partitions(partitions))

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        with self._entry:
            return self._core.paused()

    # Commits and the group

    commit = PlanMethod(consumer_plans.commit)
    committed = PlanMethod(consumer_plans.committed)

    def commit_async(
        self,
        offsets: Mapping[K, int | CommittedOffset] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit without waiting and without retries.

        Args:
            offsets: For each partition the offset of the next record to read; None commits all
                positions.
            callback: Called with (offsets, error or None) during a later call, in commit order.

        Raises:
            InvalidGroupIdError: `group_id` is missing.
            ValueError: An offset is negative.
        """
        with self._entry:
            self._core.commit_async(None if offsets is None else as_offsets(offsets), callback)

    def enforce_rebalance(self, reason: str = "requested by the user") -> None:
        """Request a rebalance of the group; it begins with the next poll.

        This has no effect with group.protocol=consumer, where the coordinator decides about
        rebalances.

        Args:
            reason: The reason that is sent to the coordinator (KIP-800).
        """
        with self._entry:
            if self._core.membership is not None:
                self._core.membership.request_rejoin(reason)

    def group_metadata(self) -> GroupGeneration:
        """Return this member and its generation, for `send_offsets_to_transaction`."""
        with self._entry:
            return self._core.generation

    # Offsets and topics

    beginning_offsets = PlanMethod(consumer_plans.beginning_offsets)
    end_offsets = PlanMethod(consumer_plans.end_offsets)
    offsets_for_times = PlanMethod(consumer_plans.offsets_for_times)
    partitions_for = PlanMethod(consumer_plans.partitions_for)
    list_topics = PlanMethod(consumer_plans.list_topics)

    # Health and metrics

    @property
    def trouble(self) -> ClientError | None:
        """Why no records arrive: the error of a broker that does not respond; None if unknown.

        Polls keep retrying.
        """
        with self._entry:
            return self._core.trouble

    def current_lag(self, partition: Partition) -> int | None:
        """Return the number of records after the position, as of the last fetch.

        Returns:
            The lag; None while it is unknown.

        Raises:
            SubscriptionError: The partition is not assigned.
        """
        with self._entry:
            return self._core.lag(as_partition(partition))

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return Kafka's consumer metrics: by group name, then by metric name."""
        with self._entry:
            assigned = len(self._core.subscription.assignment)
            return self._core.metrics.report(self._core.lags(), assigned)
