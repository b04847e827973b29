"""What both faces of the consumer have in common: all calls that need no wait."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from barnabas.client.config import ClientConfig
from barnabas.client.consumer.commits import as_offsets
from barnabas.client.consumer.consumer_parts import ConsumerParts, take_consumer_parts
from barnabas.client.consumer.lookups import Lookups, flat_partitions
from barnabas.client.consumer.offset_reset import OffsetReset
from barnabas.client.consumer.subscription import Subscription
from barnabas.client.topic_partition import TopicPartition, as_partition, as_partitions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.cluster import Cluster
    from barnabas.client.consumer.commits import CommitCallback
    from barnabas.client.consumer.consumer_calls import ConsumerCalls
    from barnabas.client.consumer.consumer_core import ConsumerCore
    from barnabas.client.consumer.consumer_iterator import ConsumerIterator
    from barnabas.client.consumer.rebalance_listener import RebalanceListener
    from barnabas.client.consumer.subscription import Topics
    from barnabas.client.errors import ClientError
    from barnabas.client.group.membership import GroupGeneration
    from barnabas.client.group_offsets import CommittedOffset
    from barnabas.client.topic_partition import K

    Partition = tuple[str, int]
    Partitions = Partition | Iterable[Partition]

__all__ = ["CLOSE_S", "MS_PER_S", "ConsumerFace", "consumer_config"]

MS_PER_S = 1000.0
# How long `close` takes at most, unless the user says otherwise.
CLOSE_S = 30.0
# The loop has a turn at least so often while polls find enough in the buffer.
_TURN_MS = 5.0


def consumer_config(
    bootstrap_servers: str | Sequence[str], given: Mapping[str, Any]
) -> tuple[ClientConfig, ConsumerParts]:
    """A consumer's keyword arguments, checked.

    Raises:
        ClientConfigError: an unknown key, or a value that cannot be.
    """
    parts, keys = take_consumer_parts(given)
    config = ClientConfig.parse({"bootstrap.servers": bootstrap_servers, **keys})
    OffsetReset.parse(config.auto_offset_reset)
    return config, parts


class ConsumerFace(ABC):
    """Base of `barnabas.Consumer` and `barnabas.aio.Consumer`."""

    def __init__(
        self,
        cluster: Cluster,
        core: ConsumerCore,
        iterator: ConsumerIterator,
        calls: ConsumerCalls,
    ) -> None:
        # All keys, checked.
        self.config = core.config
        self._core = core
        self._iterator = iterator
        self._entry = calls
        self._lookups = Lookups(cluster, core)
        self._limit = core.config.max_poll_records
        self._clock = cluster.runtime.clock
        # When the loop last had a turn for a poll that did not wait.
        self._turned_ms = 0.0

    def __repr__(self) -> str:
        servers = ",".join(f"{host}:{port}" for host, port in self.config.bootstrap_servers)
        return f"Consumer({servers!r}, group_id={self.config.group_id!r})"

    def _takes_turn(self) -> bool:
        """Whether the loop is to have a turn now: now and then, so that the next fetches leave."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._turned_ms < _TURN_MS and not self._core.has_sent_fetches():
            return False
        self._turned_ms = now_ms
        return True

    def _iteration_s(self) -> float:
        """How long an iteration waits for its next records at a time."""
        limit_ms = self.config.consumer_timeout_ms
        return CLOSE_S if limit_ms < 0 else limit_ms / MS_PER_S

    def wakeup(self) -> None:
        """Have the call that is under way, or the next one that waits, raise `WakeupError`.

        Safe from any thread, and from signal handlers.
        """
        self._core.is_wakeup_wanted = True
        self._entry.wakeup()

    # What to read

    def subscribe(
        self,
        topics: Topics = None,
        listener: RebalanceListener | None = None,
        *,
        pattern: str | None = None,
    ) -> None:
        """Have the group give this consumer partitions of these topics; replaces what was before.

        Args:
            topics: names, a compiled `re` that is matched whole against all topics here, or a
                `SubscriptionPattern` that the broker matches. No names: see `unsubscribe`.
            listener: told of rebalances.
            pattern: a regular expression in place of topics.

        Raises:
            SubscriptionError: None, blank names, or a subscription of another kind: topics,
                patterns and partitions are mutually exclusive.
            InvalidGroupIdError: no `group_id`.
        """
        wanted = Subscription.wanted(topics, pattern)
        with self._entry:
            if wanted == ():
                self._end_subscription()
            else:
                self._core.subscribe(wanted, listener)

    @abstractmethod
    def _end_subscription(self) -> None:
        """`subscribe` or `assign` was called with nothing: as `unsubscribe`."""

    def assign(self, partitions: Iterable[Partition] | None) -> None:
        """Read exactly these (topic, partition), whatever any group says.

        Raises:
            SubscriptionError: None, a blank topic, or topics are subscribed to.
        """
        wanted = None if partitions is None else as_partitions(partitions)
        with self._entry:
            if wanted == []:
                self._end_subscription()
            else:
                self._core.assign(wanted)

    def assignment(self) -> set[TopicPartition]:
        """The partitions that this consumer has now."""
        with self._entry:
            return set(self._core.subscription.assignment)

    def subscription(self) -> set[str]:
        """The topics subscribed to, those that a pattern matched last included."""
        with self._entry:
            return set(self._core.subscription.topics)

    # Positions

    def seek(self, partition: Partition, offset: int | CommittedOffset) -> None:
        """Go on at `offset` with the next poll.

        Raises:
            SubscriptionError: the partition is not assigned.
            ValueError: a negative offset.
        """
        [(tp, wanted)] = as_offsets({partition: offset}).items()
        with self._entry:
            self._core.positions.seek(tp, wanted.offset, wanted.leader_epoch)

    def seek_to_beginning(self, *partitions: Partitions) -> None:
        """Go on at the first record there is, in these partitions or in all that are assigned."""
        self._reset(partitions, OffsetReset.earliest())

    def seek_to_end(self, *partitions: Partitions) -> None:
        """Go on behind the last record, in these partitions or in all that are assigned."""
        self._reset(partitions, OffsetReset.latest())

    def _reset(self, partitions: Iterable[Partitions], reset: OffsetReset) -> None:
        with self._entry:
            for tp in flat_partitions(partitions) or list(self._core.subscription.assignment):
                self._core.positions.reset(tp, reset)

    def pause(self, *partitions: Partitions) -> None:
        """Give nothing of these out until `resume`; the assignment stays."""
        with self._entry:
            self._core.pause(flat_partitions(partitions))

    def resume(self, *partitions: Partitions) -> None:
        """Undo `pause`."""
        with self._entry:
            self._core.resume(flat_partitions(partitions))

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        with self._entry:
            return self._core.paused()

    # Commits and the group

    def commit_async(
        self,
        offsets: Mapping[K, int | CommittedOffset] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit without waiting, and without trying again.

        Args:
            offsets: as for `commit`.
            callback: called with (offsets, error or None) within a later call; in order.
        """
        with self._entry:
            self._core.commit_async(None if offsets is None else as_offsets(offsets), callback)

    def enforce_rebalance(self, reason: str = "the user asked for it") -> None:
        """Have the group's members join anew with the next poll."""
        with self._entry:
            if self._core.membership is not None:
                self._core.membership.request_rejoin(reason)

    def group_metadata(self) -> GroupGeneration:
        """Who this consumer is in its group: for `send_offsets_to_transaction`."""
        with self._entry:
            return self._core.generation

    # What is known

    @property
    def trouble(self) -> ClientError | None:
        """Why nothing comes, if that is known: a broker does not answer. Polls try on."""
        with self._entry:
            return self._core.trouble

    def current_lag(self, partition: Partition) -> int | None:
        """Records behind the position as of the last fetch; None while that is not known."""
        with self._entry:
            return self._core.lag(as_partition(partition))

    def metrics(self) -> dict[str, dict[str, float]]:
        """Kafka's consumer metrics by group and name."""
        with self._entry:
            assigned = len(self._core.subscription.assignment)
            return self._core.metrics.report(self._core.lags(), assigned)
