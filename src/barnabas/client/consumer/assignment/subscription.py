"""Subscription and assignment of a consumer (Kafka's SubscriptionState), and rebalance callbacks.

A consumer subscribes to topics by name, to a pattern that the client matches, or to a regex that
the broker matches (KIP-848). Instead it can be assigned partitions by hand. These kinds are
mutually exclusive. `SubscribedTopics` requests the metadata of the topics when the subscription
changes, and watches it.
"""

from __future__ import annotations

import logging
import re
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from barnabas.client.consumer.assignment.topic_partition_state import TopicPartitionState
from barnabas.client.consumer.errors import SubscriptionError
from barnabas.client.errors import UnknownTopicError, broker_error
from barnabas.client.topic_partition import as_partitions
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.connections.metadata_cache import TopicInfo
    from barnabas.client.errors import ClientError
    from barnabas.client.topic_partition import TopicPartition


__all__ = [
    "RebalanceListener",
    "SubscribedTopics",
    "Subscription",
    "SubscriptionKind",
    "SubscriptionPattern",
    "Topics",
]


class RebalanceListener:
    """Base class of rebalance callbacks; override the methods that you need.

    All methods run inside `poll`, `unsubscribe` or `close`, on the thread of that call. They may
    call the consumer, for example to commit, to seek or to read positions. With
    `barnabas.aio.Consumer` they may be `async def`.
    """

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> object:
        """Handle the revocation of partitions; the last chance to commit their offsets."""

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> object:
        """Handle newly assigned partitions, before any of their records are fetched."""

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> object:
        """Handle partitions that other members may already own.

        The default calls `on_partitions_revoked`.
        """
        return self.on_partitions_revoked(lost)


class SubscriptionPattern(str):
    """An RE2 regular expression that the broker matches (group.protocol=consumer only)."""

    __slots__ = ()


# The argument of `subscribe`.
Topics: TypeAlias = "Iterable[str] | str | re.Pattern[str] | SubscriptionPattern | None"


class SubscriptionKind(Enum):
    """The way in which the partitions of a consumer are chosen."""

    NONE = "nothing"
    TOPICS = "topics"
    PATTERN = "patterns that the client matches"
    REGEX = "patterns that the broker matches"
    MANUAL = "partitions"


_K = SubscriptionKind


class Subscription:
    """Subscription and assignment of one consumer.

    Args:
        exclude_internal: Whether a pattern ignores internal topics such as __consumer_offsets.
    """

    __slots__ = (
        "_exclude_internal",
        "assignment",
        "kind",
        "listener",
        "pattern",
        "regex",
        "topics",
    )

    def __init__(self, *, exclude_internal: bool = True) -> None:
        self._exclude_internal = exclude_internal
        self.kind = _K.NONE
        # Names of the subscribed topics: as given, or as the pattern last matched.
        self.topics: frozenset[str] = frozenset()
        # The pattern that the client matches; set only for kind PATTERN.
        self.pattern: re.Pattern[str] | None = None
        # The pattern that the broker matches; set only for kind REGEX.
        self.regex: str | None = None
        self.listener: RebalanceListener | None = None
        # The assigned partitions. The fetcher shares this mapping. A partition that stays assigned
        # keeps its object.
        self.assignment: dict[TopicPartition, TopicPartitionState] = {}

    @staticmethod
    def wanted(topics: Topics, pattern: str | None) -> Topics:
        """Return the arguments of `subscribe` as one value; an empty tuple for no topics.

        Raises:
            SubscriptionError: Topics and a pattern are both given, the pattern is not a regular
                expression, or a name is invalid.
        """
        if pattern is not None:
            if topics:
                raise SubscriptionError("subscribe: give either topics or a pattern")
            try:
                return re.compile(pattern)
            except (re.error, OverflowError, RecursionError) as error:
                raise SubscriptionError(f"subscribe: the pattern {pattern}: {error}") from None
        if topics is None or isinstance(topics, re.Pattern | SubscriptionPattern):
            return topics
        return tuple(_names(topics))

    @property
    def is_by_group(self) -> bool:
        """Whether the group assigns the partitions."""
        return self.kind in (_K.TOPICS, _K.PATTERN, _K.REGEX)

    def partition(self, tp: TopicPartition) -> TopicPartitionState:
        """Return the state of an assigned partition.

        Raises:
            SubscriptionError: The partition is not assigned.
        """
        found = self.assignment.get(tp)
        if found is None:
            raise SubscriptionError(f"{tp} is not assigned to this consumer")
        return found

    # Subscription

    def subscribe(self, topics: Topics, listener: RebalanceListener | None) -> None:
        """Replace the subscription; the assignment stays until the group changes it.

        Raises:
            SubscriptionError: The topics are None, a name is blank, or there is a subscription of
                another kind.
        """
        if topics is None:
            raise SubscriptionError("subscribe: the topics are None")
        if isinstance(topics, SubscriptionPattern):
            if not topics.strip():
                raise SubscriptionError("subscribe: the pattern is blank")
            self._change_kind(_K.REGEX)
            self.regex = str(topics)
        elif isinstance(topics, re.Pattern):
            if not topics.pattern:
                raise SubscriptionError("subscribe: the pattern is blank")
            self._change_kind(_K.PATTERN)
            self.pattern = topics
        else:
            names = _names(topics)
            self._change_kind(_K.TOPICS)
            self.topics = frozenset(names)
        self.listener = listener

    def _change_kind(self, kind: SubscriptionKind) -> None:
        if self.kind not in (_K.NONE, kind):
            raise SubscriptionError(
                f"this consumer is subscribed to {self.kind.value}, not to {kind.value}: "
                f"subscriptions to topics, partitions and patterns are mutually exclusive; "
                f"call unsubscribe() first"
            )
        self.kind = kind
        self.topics = frozenset()
        self.pattern = self.regex = None

    def match(self, topics: Iterable[TopicInfo]) -> bool:
        """Match the pattern against the cluster's topics; return whether the names changed."""
        if self.pattern is None:
            return False
        matches = self.pattern.fullmatch
        found = frozenset(
            topic.name
            for topic in topics
            if not (topic.is_internal and self._exclude_internal) and matches(topic.name)
        )
        changed = found != self.topics
        self.topics = found
        return changed

    # Assignment

    def assign_by_hand(
        self, partitions: Iterable[tuple[str, int]] | None
    ) -> list[TopicPartitionState]:
        """Assign exactly these partitions by hand; return those that are no longer assigned.

        Raises:
            SubscriptionError: The partitions are None, a topic is blank, or the consumer is
                subscribed to topics.
        """
        if partitions is None:
            raise SubscriptionError("assign: the partitions are None")
        wanted = as_partitions(partitions)
        for tp in wanted:
            _check_name(tp.topic)
        if self.kind is not _K.MANUAL:
            self._change_kind(_K.MANUAL)
        return self._assign(wanted)

    def assign_by_group(self, partitions: Iterable[TopicPartition]) -> list[TopicPartitionState]:
        """Assign exactly these partitions for the group; return those no longer assigned."""
        return self._assign(list(partitions))

    def _assign(self, wanted: list[TopicPartition]) -> list[TopicPartitionState]:
        before = dict(self.assignment)
        self.assignment.clear()
        self.assignment.update((tp, before.get(tp) or TopicPartitionState(tp)) for tp in wanted)
        return [state for tp, state in before.items() if tp not in self.assignment]

    def unsubscribe(self) -> list[TopicPartitionState]:
        """Remove subscription and assignment; return the partitions that were assigned."""
        self.kind = _K.NONE
        self.topics = frozenset()
        self.pattern = self.regex = None
        self.listener = None
        return self._assign([])


def _names(topics: Iterable[str] | str) -> list[str]:
    names = [topics] if isinstance(topics, str) else list(topics)
    for name in names:
        _check_name(name)
    return names


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise SubscriptionError(f"a topic name is a string, not {name!r}")
    if not name.strip():
        raise SubscriptionError("a topic name is blank")


_log = logging.getLogger(__name__)


class SubscribedTopics:
    """Keeps the cluster's metadata in line with the subscription.

    Args:
        cluster: The cluster; its tracked topics belong to this consumer only.
        subscription: The subscription and assignment.
        on_changed: Called when the topics that match a pattern change, or the number of partitions
            of a topic.
    """

    def __init__(
        self, cluster: Cluster, subscription: Subscription, on_changed: Callable[[], None]
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._on_changed = on_changed
        self._clock = cluster.runtime.clock
        # Number of partitions by topic, as of the last metadata update.
        self._counts: dict[str, int] = {}
        # When the pattern is next matched against all topics (ms, monotonic clock).
        self._next_refresh_ms = 0.0
        # Subscribed topics that do not exist and for which a warning was logged.
        self._warned: set[str] = set()
        # Whether a metadata request for missing topics is scheduled.
        self._is_retry_scheduled = False
        cluster.on_update(self._on_update)

    def track(self) -> None:
        """Set the cluster's tracked topics to the subscribed and assigned topics."""
        wanted = set(self._subscription.topics)
        wanted.update(tp.topic for tp in self._subscription.assignment)
        tracked = self._cluster.tracked
        tracked.clear()
        tracked.update(wanted)

    def refresh(self) -> None:
        """Request metadata of subscribed topics that are not known yet."""
        self.track()
        known = self._cluster.metadata.topics
        missing = [topic for topic in self._cluster.tracked if topic not in known]
        if self._subscription.pattern is not None:
            self._next_refresh_ms = 0.0
        elif missing:
            self._cluster.refresh(missing, _ignore)
        self._counts = self._count()

    def check(self) -> None:
        """Raise the error of a subscribed topic, once per metadata response.

        Raises:
            BrokerError: A topic name is invalid, or the principal may not describe the topic.
        """
        errors = self._cluster.metadata.errors
        if not errors:
            return
        for name in self._cluster.tracked:
            code = errors.get(name)
            if code and not (error := broker_error(code, name)).retriable:
                del errors[name]
                raise error

    def maybe_refresh(self) -> None:
        """Request all topics if a pattern is due, or the tracked topics if metadata is old."""
        if self._subscription.pattern is None:
            self._cluster.maybe_update_by_age()
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_refresh_ms:
            self._next_refresh_ms = now_ms + self._cluster.config.metadata_max_age_ms
            self._cluster.refresh(None, _ignore)

    def next_refresh_ms(self) -> float | None:
        """Return when `maybe_refresh` must be called again (ms, monotonic clock), or None."""
        return None if self._subscription.pattern is None else self._next_refresh_ms

    def stop(self) -> None:
        """Stop watching metadata updates."""
        self._cluster.remove_listener(self._on_update)

    def _count(self) -> dict[str, int]:
        topics = self._cluster.metadata.topics
        return {
            name: len(topics[name].partitions)
            for name in self._subscription.topics
            if name in topics
        }

    def _on_update(self) -> None:
        subscription = self._subscription
        if not subscription.is_by_group:
            self._schedule_retry()
            return
        metadata = self._cluster.metadata
        changed = False
        if subscription.kind is SubscriptionKind.PATTERN:
            changed = subscription.match(metadata.topics.values())
            if changed:
                self.track()
        counts = self._count()
        if counts != self._counts:
            self._counts = counts
            changed = True
        if changed:
            self._on_changed()
        self._warn_about_missing()
        self._schedule_retry()

    def _warn_about_missing(self) -> None:
        """Log one warning for each missing topic, because its name may be misspelled."""
        metadata = self._cluster.metadata
        missing = {
            name
            for name in self._subscription.topics
            if metadata.errors.get(name) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
        for name in sorted(missing - self._warned):
            error = UnknownTopicError(name, metadata.similar(name))
            _log.warning("Subscribed topic is unknown; retrying: topic=%s error=%s", name, error)
        self._warned = missing

    def _schedule_retry(self) -> None:
        """Schedule a metadata request for missing topics, which may be created at any time."""
        metadata = self._cluster.metadata
        if self._is_retry_scheduled or all(
            name in metadata.topics for name in self._cluster.tracked
        ):
            return
        self._is_retry_scheduled = True

        def retry() -> None:
            self._is_retry_scheduled = False
            if not all(name in metadata.topics for name in self._cluster.tracked):
                self._cluster.request_update()

        delay_ms = self._cluster.config.retry_backoff_max_ms
        self._cluster.runtime.timer.call_later(delay_ms, retry)


def _ignore(_none: None, _error: ClientError | None) -> None:
    """Ignore the result: topic errors are in the metadata, other errors lead to a retry."""
