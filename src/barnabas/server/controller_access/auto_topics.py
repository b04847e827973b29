"""Topics that a broker creates itself: missing ones, and internal topics of streams groups.

Missing topics are created as in Kafka's AutoTopicCreationManager, internal topics as in KIP-1071,
and the topic with the metadata of remote segments as in KIP-405.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.storage.remote_keys import REMOTE_LOG_TOPIC, SYSTEM_ENABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.coordinator.group.streams.configuring import ConfiguredInternalTopic
    from barnabas.protocol.messages.topics import CreatableTopic, CreateTopicsResponse
    from barnabas.runtime.clock import Clock
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.controller_access.controller_access import ControllerAccess
    from barnabas.settings.definition import ParsedConfig
    from barnabas.storage.remote.config import MetadataTopicConfig


_log = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
SHARE_GROUP_TOPIC = "__share_group_state"
# Topics that are created even if auto.create.topics.enable is false.
_INTERNAL = frozenset({OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_GROUP_TOPIC})
_TIMEOUT_MS = 30_000
# Limit for the topics of one request. Each needs two metadata records or more, and the controller
# refuses requests that need more than 10,000.
_TOPICS_MAX = 5_000
# Limit for the failed topics of one request that are logged.
_LOGGED_MAX = 10


class AutoTopics:
    """Asks the controller to create missing topics, with one pending request per topic."""

    def __init__(
        self,
        config: ParsedConfig,
        cluster: ClusterView,
        forwarding: ControllerAccess,
        *,
        is_alone: bool,
    ) -> None:
        """Create without pending topics.

        Args:
            config: configuration of the broker.
            cluster: metadata view.
            forwarding: access to the controller.
            is_alone: whether this node is the only node of its cluster.
        """
        self._config = config
        self._is_alone = is_alone
        self._cluster = cluster
        self._forwarding = forwarding
        # Names of topics with a pending CreateTopics request.
        self._in_flight: set[str] = set()

    def create(self, names: Iterable[str]) -> None:
        """Start the creation of internal topics and, if auto-creation is enabled, other topics."""
        enabled = self._config.boolean("auto.create.topics.enable")
        if self._config.boolean(SYSTEM_ENABLE):
            # A client that asks for it must not create it with other partitions and configs.
            names = (name for name in names if name != REMOTE_LOG_TOPIC)
        new = [
            name for name in names if name not in self._in_flight and (enabled or name in _INTERNAL)
        ]
        if not new:
            return
        if len(new) > _TOPICS_MAX:
            _log.warning(
                "Automatic topic creation refused: topics=%d limit=%d", len(new), _TOPICS_MAX
            )
            return
        self._send(new, [self._creatable(name) for name in new])

    def create_metadata_topic(self, config: MetadataTopicConfig) -> None:
        """Start the creation of the topic with the metadata of remote segments.

        Args:
            config: its number of partitions, its replicas and its configs.
        """
        if REMOTE_LOG_TOPIC in self._in_flight:
            return
        replication_factor = config.remote_log_metadata_topic_replication_factor
        if self._is_alone:
            replication_factor = self._limited(replication_factor)
        min_isr = min(config.remote_log_metadata_topic_min_isr, replication_factor)
        topic = _topic(
            REMOTE_LOG_TOPIC,
            config.remote_log_metadata_topic_num_partitions,
            replication_factor,
            {
                "cleanup.policy": "delete",
                "min.insync.replicas": str(min_isr),
                "remote.storage.enable": "false",
                "retention.ms": str(config.remote_log_metadata_topic_retention_ms),
            },
        )
        self._send([REMOTE_LOG_TOPIC], [topic])

    def _send(self, names: list[str], topics: list[CreatableTopic]) -> None:
        from barnabas.protocol.messages.topics import CreateTopicsRequest

        self._in_flight.update(names)
        request = CreateTopicsRequest(topics=topics, timeout_ms=_TIMEOUT_MS, validate_only=False)
        self._forwarding.send(request, self._on_created(names))

    def _on_created(self, names: list[str]) -> Callable[[CreateTopicsResponse], None]:
        def on_done(response: CreateTopicsResponse) -> None:
            self._in_flight.difference_update(names)
            expected = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
            failed = [each for each in response.topics if each.error_code not in expected]
            for topic in failed[:_LOGGED_MAX]:
                _log.warning(
                    "Automatic topic creation failed: topic=%s error=%s message=%s",
                    topic.name,
                    ErrorCode.of(topic.error_code).name,
                    topic.error_message or "",
                )
            if len(failed) > _LOGGED_MAX:
                _log.warning(
                    "Automatic topic creation failed: further_topics=%d", len(failed) - _LOGGED_MAX
                )

        return on_done

    def _creatable(self, name: str) -> CreatableTopic:
        if name == OFFSETS_TOPIC:
            return self._offsets_topic()
        if name == TRANSACTION_TOPIC:
            return self._transaction_topic()
        if name == SHARE_GROUP_TOPIC:
            return self._share_group_topic()
        return _topic(
            name,
            self._config.integer("num.partitions"),
            self._config.integer("default.replication.factor"),
            {},
        )

    def _offsets_topic(self) -> CreatableTopic:
        config = self._config
        return self._internal_topic(
            OFFSETS_TOPIC,
            config.integer("offsets.topic.num.partitions"),
            "offsets.topic.replication.factor",
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.integer("offsets.topic.segment.bytes")),
            },
        )

    def _transaction_topic(self) -> CreatableTopic:
        config = self._config
        replication_factor = "transaction.state.log.replication.factor"
        topic = self._internal_topic(
            TRANSACTION_TOPIC,
            config.integer("transaction.state.log.num.partitions"),
            replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": "",
                "segment.bytes": str(config.integer("transaction.state.log.segment.bytes")),
                "unclean.leader.election.enable": "false",
            },
        )
        self._limit_min_isr(topic, replication_factor, "transaction.state.log.min.isr")
        return topic

    def _share_group_topic(self) -> CreatableTopic:
        config = self._config
        replication_factor = "share.coordinator.state.topic.replication.factor"
        topic = self._internal_topic(
            SHARE_GROUP_TOPIC,
            config.integer("share.coordinator.state.topic.num.partitions"),
            replication_factor,
            {
                # The share coordinator deletes the records that later snapshots replace.
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": "",
                "retention.ms": "-1",
                "segment.bytes": str(config.integer("share.coordinator.state.topic.segment.bytes")),
            },
        )
        self._limit_min_isr(topic, replication_factor, "share.coordinator.state.topic.min.isr")
        return topic

    def _limit_min_isr(self, topic: CreatableTopic, replication_key: str, min_isr_key: str) -> None:
        """Set min.insync.replicas; at most the number of replicas if that is not configured."""
        min_isr = self._config.integer(min_isr_key)
        if replication_key not in self._config.given:
            min_isr = min(min_isr, topic.replication_factor)
        for each in topic.configs:
            if each.name == "min.insync.replicas":
                each.value = str(min_isr)

    def _internal_topic(
        self, name: str, partitions: int, replication_key: str, configs: dict[str, str]
    ) -> CreatableTopic:
        replication_factor = self._config.integer(replication_key)
        if self._is_alone and replication_key not in self._config.given:
            replication_factor = self._limited(replication_factor)
        return _topic(name, partitions, replication_factor, configs)

    def _limited(self, replication_factor: int) -> int:
        """Return a replication factor for the live brokers, for a node without other nodes.

        With Kafka's default of 3, it could not create the topic. In a cluster the default applies
        even if fewer brokers are alive, because a topic is created only once.
        """
        live = sum(not broker.fenced for broker in self._cluster.image.brokers.values())
        return max(1, min(replication_factor, live))


def _topic(
    name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
) -> CreatableTopic:
    from barnabas.protocol.messages.topics import CreatableTopic, CreatableTopicConfig

    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )


# The replication factor of brokers' default.replication.factor.
_DEFAULT_REPLICATION = -1
# Limit of remembered errors, as in Kafka.
_ERRORS_MAX = 1_000
# Topics of one CreateTopics request. More topics follow with later heartbeats.
_INTERNAL_TOPICS_MAX = 500


class InternalStreamsTopics:
    """Asks the controller to create topics, and remembers its errors for later heartbeats."""

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
        ][:_INTERNAL_TOPICS_MAX]
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
    return _topic(
        topic.name,
        topic.partitions,
        topic.replication_factor or _DEFAULT_REPLICATION,
        topic.configs,
    )
