"""Creation of the internal topics of streams groups (KIP-1071)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.coordinator.group.streams.configuring import (
        ConfiguredInternalTopic,
    )
    from barnabas.protocol.messages.topics import CreatableTopic, CreateTopicsResponse
    from barnabas.runtime.clock import Clock
    from barnabas.server.controller_access.controller_access import ControllerAccess

_TIMEOUT_MS = 30_000
# The replication factor of brokers' default.replication.factor.
_DEFAULT_REPLICATION = -1
# Limit of remembered errors, as in Kafka.
_ERRORS_MAX = 1_000
# Topics of one CreateTopics request. More topics follow with later heartbeats.
_TOPICS_MAX = 500


class InternalStreamsTopics:
    """Asks the controller to create topics, and remembers its errors for later heartbeats."""

    __slots__ = ("_clock", "_errors", "_forwarding", "_in_flight")

    def __init__(self, forwarding: ControllerAccess, clock: Clock) -> None:
        self._forwarding = forwarding
        self._clock = clock
        # Names of topics with a pending CreateTopics request.
        self._in_flight: set[str] = set()
        # (error message, expiry in monotonic ms) by topic. Begins with the oldest error.
        self._errors: dict[str, tuple[str, float]] = {}

    def create(self, topics: Mapping[str, ConfiguredInternalTopic], errors_ms: float) -> None:
        """Create topics that are not being created, and whose creation has not failed lately.

        Args:
            topics: the topics by name.
            errors_ms: how long the errors are remembered, in ms.
        """
        known = self.errors(topics)
        new = [
            topic
            for name, topic in topics.items()
            if name not in self._in_flight and name not in known
        ][:_TOPICS_MAX]
        if not new:
            return
        from barnabas.protocol.messages.topics import CreateTopicsRequest

        names = [topic.name for topic in new]
        self._in_flight.update(names)

        def on_done(response: CreateTopicsResponse) -> None:
            self._in_flight.difference_update(names)
            for topic in response.topics:
                if topic.error_code != ErrorCode.NONE:
                    message = topic.error_message or ErrorCode.of(topic.error_code).message
                    self._remember(topic.name, message, errors_ms)

        self._forwarding.send(
            CreateTopicsRequest(
                topics=[_creatable(topic) for topic in new],
                timeout_ms=_TIMEOUT_MS,
                validate_only=False,
            ),
            on_done,
        )

    def errors(self, names: Mapping[str, ConfiguredInternalTopic]) -> dict[str, str]:
        """Return the remembered errors of these topics."""
        now_ms = self._clock.monotonic_ms()
        found: dict[str, str] = {}
        for name in names:
            message, until_ms = self._errors.get(name, ("", 0.0))
            if until_ms > now_ms:
                found[name] = message
        return found

    def _remember(self, name: str, message: str, errors_ms: float) -> None:
        now_ms = self._clock.monotonic_ms()
        self._errors.pop(name, None)
        self._errors[name] = (message, now_ms + errors_ms)
        for each in list(self._errors):
            if len(self._errors) <= _ERRORS_MAX and self._errors[each][1] > now_ms:
                break
            del self._errors[each]


def _creatable(topic: ConfiguredInternalTopic) -> CreatableTopic:
    from barnabas.protocol.messages.topics import CreatableTopic, CreatableTopicConfig

    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor or _DEFAULT_REPLICATION,
        assignments=[],
        configs=[
            CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()
        ],
    )
