"""Metadata of the subscribed topics: requested when the subscription changes, then watched."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.client.consumer.assignment.subscription import SubscriptionKind
from barnabas.client.errors import UnknownTopicError, broker_error
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.consumer.assignment.subscription import Subscription
    from barnabas.client.errors import ClientError

__all__ = ["SubscribedTopics"]

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
