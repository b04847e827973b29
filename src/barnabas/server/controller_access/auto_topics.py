"""Automatic creation of topics (Kafka: AutoTopicCreationManager)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsResponse
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.controller_access.controller_access import ControllerAccess
    from barnabas.settings.definition import ParsedConfig

_log = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"
_OFFSETS_REPLICATION_FACTOR = "offsets.topic.replication.factor"
_TIMEOUT_MS = 30_000


class AutoTopics:
    """Asks the controller to create missing topics, with one pending request per topic."""

    __slots__ = ("_cluster", "_config", "_forwarding", "_in_flight", "_is_alone")

    def __init__(
        self,
        config: ParsedConfig,
        cluster: ClusterView,
        forwarding: ControllerAccess,
        *,
        is_alone: bool,
    ) -> None:
        """Args:
        config: configuration of the broker.
        cluster: metadata view.
        forwarding: access to the controller.
        is_alone: whether this node is a cluster of its own.
        """
        self._config = config
        self._is_alone = is_alone
        self._cluster = cluster
        self._forwarding = forwarding
        # Names of topics with a pending CreateTopics request.
        self._in_flight: set[str] = set()

    def create(self, names: Iterable[str]) -> None:
        """Begin to create topics, if auto-creation is enabled or for the offsets topic."""
        enabled = self._config.boolean("auto.create.topics.enable")
        new = [
            name
            for name in names
            if name not in self._in_flight and (enabled or name == OFFSETS_TOPIC)
        ]
        if not new:
            return
        from barnabas.protocol.messages.create_topics import CreateTopicsRequest

        self._in_flight.update(new)
        request = CreateTopicsRequest(
            topics=[self._creatable(name) for name in new],
            timeout_ms=_TIMEOUT_MS,
            validate_only=False,
        )
        self._forwarding.send(request, self._on_created(new))

    def _on_created(self, names: list[str]) -> Callable[[CreateTopicsResponse], None]:
        def on_done(response: CreateTopicsResponse) -> None:
            self._in_flight.difference_update(names)
            for topic in response.topics:
                if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    _log.warning(
                        "Automatic topic creation failed: topic=%s error=%s message=%s",
                        topic.name,
                        ErrorCode.of(topic.error_code).name,
                        topic.error_message or "",
                    )

        return on_done

    def _creatable(self, name: str) -> CreatableTopic:
        from barnabas.protocol.messages.create_topics import CreatableTopic

        if name == OFFSETS_TOPIC:
            return self._offsets_topic()
        return CreatableTopic(
            name=name,
            num_partitions=self._config.integer("num.partitions"),
            replication_factor=self._config.integer("default.replication.factor"),
            assignments=[],
            configs=[],
        )

    def _offsets_topic(self) -> CreatableTopic:
        from barnabas.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig

        config = self._config
        replication_factor = config.integer(_OFFSETS_REPLICATION_FACTOR)
        if self._is_alone and _OFFSETS_REPLICATION_FACTOR not in config.given:
            # Kafka's default of 3 would prevent consumer groups on a single node. In a cluster the
            # default stays, however many brokers are alive: the topic is created only once.
            live = sum(not broker.fenced for broker in self._cluster.image.brokers.values())
            replication_factor = max(1, min(replication_factor, live))
        return CreatableTopic(
            name=OFFSETS_TOPIC,
            num_partitions=config.integer("offsets.topic.num.partitions"),
            replication_factor=replication_factor,
            assignments=[],
            configs=[
                CreatableTopicConfig(name=name, value=value)
                for name, value in (
                    ("cleanup.policy", "compact"),
                    ("compression.type", "producer"),
                    ("segment.bytes", str(config.integer("offsets.topic.segment.bytes"))),
                )
            ],
        )
