"""Subscription and assignment of a consumer (Kafka's SubscriptionState), and rebalance callbacks.

A consumer subscribes to topics by name, to a pattern that the client matches, or to a regex that
the broker matches (KIP-848). Instead it can be assigned partitions by hand. These kinds are
mutually exclusive.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from barnabas.client.consumer.assignment.topic_partition_state import TopicPartitionState
from barnabas.client.consumer.errors import SubscriptionError
from barnabas.client.topic_partition import as_partitions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from barnabas.client.connections.metadata_cache import TopicInfo
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["RebalanceListener", "Subscription", "SubscriptionKind", "SubscriptionPattern", "Topics"]


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
