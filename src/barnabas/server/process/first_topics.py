"""Topics that a node creates before it reports that it is ready (`barnabas start --topic`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.server.startup.node_failure import NodeFailedError
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.protocol.messages.topics import CreateTopicsResponse
    from barnabas.runtime.clock import Timer
    from barnabas.server.handlers.dependencies import BrokerDependencies

# Replaced by the default of the broker's configuration.
_DEFAULT = -1
_TIMEOUT_MS = 30_000
_CHECK_MS = 2.0


class TopicError(NodeFailedError):
    """A topic could not be created. The message has its name and the reason."""


class NewTopic(msgspec.Struct, frozen=True):
    """A topic to create, with the broker's default replication factor."""

    name: str
    # Number of partitions; -1 for the broker's default, `num.partitions`.
    partitions: int = _DEFAULT


def parse_topic(text: str) -> NewTopic:
    """Parse NAME or NAME:PARTITIONS.

    Raises:
        TopicError: the name is missing, or PARTITIONS is not a positive integer.
    """
    name, colon, count = text.partition(":")
    if not colon and name:
        return NewTopic(name)
    if not name or not (count.isascii() and count.isdecimal()) or int(count) < 1:
        raise TopicError(f"write NAME or NAME:PARTITIONS, for example orders:3, not {text!r}")
    return NewTopic(name, int(count))


class FirstTopics:
    """Creates topics and waits until this node knows the leader of each partition.

    A topic that exists already is not changed.
    """

    def __init__(
        self,
        dependencies: BrokerDependencies,
        timer: Timer,
        on_created: Callable[[], None],
        on_failed: Callable[[TopicError], None],
    ) -> None:
        """Create the topics later, when the node serves requests.

        Args:
            dependencies: dependencies of the broker's handlers.
            timer: runs the checks for leaders.
            on_created: called once all topics can be used, perhaps before `create` returns.
            on_failed: called instead if a topic cannot be created.
        """
        self._dependencies = dependencies
        self._timer = timer
        self._on_created = on_created
        self._on_failed = on_failed
        # Names of the topics to create. Set by `create`.
        self._names: list[str] = []
        # Ids of the brokers that must serve before. Set by `create`.
        self._brokers: frozenset[int] = frozenset()
        # Time (ms, monotonic) until which all partitions must have leaders.
        self._deadline_ms = 0.0

    def create(self, topics: Sequence[NewTopic], brokers: frozenset[int] = frozenset()) -> None:
        """Begin to create the topics. Call this method only once.

        Args:
            topics: the topics.
            brokers: ids of the brokers that get replicas: the topics are created when they serve.
        """
        if not topics:
            self._on_created()
            return
        self._brokers = brokers
        self._names = [topic.name for topic in topics]
        self._await_brokers(topics)

    def _await_brokers(self, topics: Sequence[NewTopic]) -> None:
        brokers = self._dependencies.cluster.image.brokers
        found = {broker_id: brokers.get(broker_id) for broker_id in self._brokers}
        if any(broker is None or broker.fenced for broker in found.values()):
            # The supervisor of the node ends this process if another broker fails.
            self._timer.call_later(_CHECK_MS, lambda: self._await_brokers(topics))
        else:
            self._send(topics)

    def _send(self, topics: Sequence[NewTopic]) -> None:
        from barnabas.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

        self._deadline_ms = self._dependencies.clock.monotonic_ms() + _TIMEOUT_MS
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=_DEFAULT,
                    assignments=[],
                    configs=[],
                )
                for topic in topics
            ],
            timeout_ms=_TIMEOUT_MS,
            validate_only=False,
        )
        self._dependencies.forwarding.send(request, self._on_response)

    def _on_response(self, response: CreateTopicsResponse) -> None:
        for topic in response.topics:
            if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                name = ErrorCode.of(topic.error_code).name
                reason = topic.error_message or "without a reason"
                self._on_failed(
                    TopicError(f"topic {topic.name!r} could not be created: {name}, {reason}")
                )
                return
        self._await_leaders()

    def _await_leaders(self) -> None:
        missing = [name for name in self._names if not self._can_be_used(name)]
        if not missing:
            self._on_created()
        elif self._dependencies.clock.monotonic_ms() < self._deadline_ms:
            self._timer.call_later(_CHECK_MS, self._await_leaders)
        else:
            self._on_failed(TopicError(f"topics without a leader: {', '.join(missing)}"))

    def _can_be_used(self, name: str) -> bool:
        """Return whether all partitions have leaders, and the replicas on this node are open."""
        topic = self._dependencies.cluster.image.topics.by_name(name)
        if topic is None:
            return False
        node_id, replicas = self._dependencies.node_id, self._dependencies.replicas
        return all(
            each.leader >= 0
            and (
                node_id not in each.replicas
                or not isinstance(replicas.partition(TopicPartition(name, number)), ErrorCode)
            )
            for number, each in topic.partitions.items()
        )
