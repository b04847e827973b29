"""Topics, partitions, configs and the cluster, as admin calls (KIP-4, KIP-339, KIP-700).

Requests and answers only: each function starts one call and hands typed values to `on_done`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from barnabas.client.cluster import ANY_NODE, CONTROLLER, Cluster
from barnabas.client.connections import Call
from barnabas.client.errors import BrokerError, ClientError, broker_error
from barnabas.client.metadata_cache import NodeInfo
from barnabas.client.retrying import OnDone, RetryingCall
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from barnabas.protocol.schema import Message

T = TypeVar("T")

__all__ = ["Admin", "ClusterDescription", "ConfigEntry", "NewTopic"]

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
_SET = 0
_DELETE = 1
# From this version on topics are deleted by structs with a name or an id.
_DELETE_BY_STRUCT_FROM = 6
_DEFAULT_SOURCE = 5
_SOURCES = {
    0: "unknown",
    1: "topic",
    2: "dynamic broker",
    3: "dynamic default broker",
    4: "static broker",
    _DEFAULT_SOURCE: "default",
    6: "dynamic broker logger",
    7: "client metrics",
    8: "group",
}


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created; -1 stands for the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One config of a topic or broker as it is in force."""

    name: str
    value: str | None
    # Where the value comes from: "topic", "default", "static broker", ...
    source: str
    is_default: bool
    is_read_only: bool
    is_sensitive: bool


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster's id, its controller as clients are told, and its brokers."""

    cluster_id: str
    controller_id: int
    brokers: tuple[NodeInfo, ...]


class Admin:
    """Starts admin calls; what fails for a reason that passes is tried again until the time-out."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def _call(
        self,
        node_id: int,
        api_key: ApiKey,
        build: Callable[[int], Message],
        read: Callable[[Message], tuple[T | None, ClientError | None]],
        on_done: OnDone[T],
    ) -> None:
        def attempt(done: OnDone[T]) -> None:
            def on_answer(response: Message | None, error: ClientError | None) -> None:
                if response is None:
                    done(None, error)
                    return
                result, failure = read(response)
                done(result, failure)

            self._cluster.call(node_id, Call(api_key, build, on_answer))

        config = self._cluster.config
        RetryingCall(
            self._cluster.runtime,
            self._cluster.retry_backoff,
            config.default_api_timeout_ms,
            api_key.name.lower().replace("_", " "),
            attempt,
            on_done,
        ).start()

    def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        validate_only: bool,
        on_done: OnDone[dict[str, BrokerError | None]],
    ) -> None:
        """Create topics; the result has an error or None for each."""

        def build(_version: int) -> Message:
            return CreateTopicsRequest(
                topics=[_creatable(topic) for topic in topics],
                timeout_ms=self._cluster.config.request_timeout_ms,
                validate_only=validate_only,
            )

        def read(
            response: Message,
        ) -> tuple[dict[str, BrokerError | None] | None, ClientError | None]:
            assert isinstance(response, CreateTopicsResponse)
            results = [(t.name, t.error_code, t.error_message) for t in response.topics]
            return _per_name("create topic", results)

        self._call(CONTROLLER, ApiKey.CREATE_TOPICS, build, read, on_done)

    def delete_topics(
        self, names: Sequence[str], on_done: OnDone[dict[str, BrokerError | None]]
    ) -> None:
        """Delete topics by name; the result has an error or None for each."""

        def build(version: int) -> Message:
            timeout_ms = self._cluster.config.request_timeout_ms
            if version >= _DELETE_BY_STRUCT_FROM:
                return DeleteTopicsRequest(
                    topics=[DeleteTopicState(name=name, topic_id=bytes(16)) for name in names],
                    timeout_ms=timeout_ms,
                )
            return DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)

        def read(
            response: Message,
        ) -> tuple[dict[str, BrokerError | None] | None, ClientError | None]:
            assert isinstance(response, DeleteTopicsResponse)
            results = [(t.name or "", t.error_code, t.error_message) for t in response.responses]
            return _per_name("delete topic", results)

        self._call(CONTROLLER, ApiKey.DELETE_TOPICS, build, read, on_done)

    def create_partitions(
        self, counts: Mapping[str, int], on_done: OnDone[dict[str, BrokerError | None]]
    ) -> None:
        """Raise the number of partitions of topics to `counts`."""

        def build(_version: int) -> Message:
            return CreatePartitionsRequest(
                topics=[
                    CreatePartitionsTopic(name=name, count=count, assignments=None)
                    for name, count in counts.items()
                ],
                timeout_ms=self._cluster.config.request_timeout_ms,
                validate_only=False,
            )

        def read(
            response: Message,
        ) -> tuple[dict[str, BrokerError | None] | None, ClientError | None]:
            assert isinstance(response, CreatePartitionsResponse)
            results = [(t.name, t.error_code, t.error_message) for t in response.results]
            return _per_name("create partitions of", results)

        self._call(CONTROLLER, ApiKey.CREATE_PARTITIONS, build, read, on_done)

    def describe_configs(
        self,
        resource_type: int,
        names: Iterable[str],
        on_done: OnDone[dict[str, list[ConfigEntry]]],
    ) -> None:
        """All configs in force of topics (2) or brokers (4)."""
        resources = [
            DescribeConfigsResource(
                resource_type=resource_type, resource_name=name, configuration_keys=None
            )
            for name in names
        ]

        def build(_version: int) -> Message:
            return DescribeConfigsRequest(resources=resources)

        def read(
            response: Message,
        ) -> tuple[dict[str, list[ConfigEntry]] | None, ClientError | None]:
            assert isinstance(response, DescribeConfigsResponse)
            return _configs(response)

        self._call(ANY_NODE, ApiKey.DESCRIBE_CONFIGS, build, read, on_done)

    def alter_configs(
        self,
        resource_type: int,
        name: str,
        changes: Mapping[str, str | None],
        on_done: OnDone[bool],
    ) -> None:
        """Set configs of one resource, or take them back to their default with None."""
        configs = [
            AlterableConfig(
                name=key, config_operation=_DELETE if value is None else _SET, value=value
            )
            for key, value in changes.items()
        ]

        def build(_version: int) -> Message:
            resource = AlterConfigsResource(
                resource_type=resource_type, resource_name=name, configs=configs
            )
            return IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)

        def read(response: Message) -> tuple[bool | None, ClientError | None]:
            assert isinstance(response, IncrementalAlterConfigsResponse)
            for answer in response.responses:
                if answer.error_code:
                    subject = f"configs of {answer.resource_name}"
                    return None, broker_error(answer.error_code, subject, answer.error_message)
            return True, None

        self._call(ANY_NODE, ApiKey.INCREMENTAL_ALTER_CONFIGS, build, read, on_done)

    def describe_cluster(self, on_done: OnDone[ClusterDescription]) -> None:
        """The cluster's id, controller and brokers."""

        def build(_version: int) -> Message:
            return DescribeClusterRequest(include_cluster_authorized_operations=False)

        def read(response: Message) -> tuple[ClusterDescription | None, ClientError | None]:
            assert isinstance(response, DescribeClusterResponse)
            if response.error_code:
                detail = response.error_message
                return None, broker_error(response.error_code, "describe cluster", detail)
            brokers = tuple(NodeInfo(b.broker_id, b.host, b.port, b.rack) for b in response.brokers)
            described = ClusterDescription(response.cluster_id, response.controller_id, brokers)
            return described, None

        self._call(ANY_NODE, ApiKey.DESCRIBE_CLUSTER, build, read, on_done)


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=k, value=v) for k, v in topic.configs.items()],
    )


def _per_name(
    what: str, results: Iterable[tuple[str, int, str | None]]
) -> tuple[dict[str, BrokerError | None] | None, ClientError | None]:
    """Errors by name; NOT_CONTROLLER and the like for one are an error of the whole call."""
    found: dict[str, BrokerError | None] = {}
    for name, code, detail in results:
        error = broker_error(code, f"{what} {name}", detail) if code else None
        if (
            error is not None
            and error.retriable
            and error.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ):
            return None, error
        found[name] = error
    return found, None


def _configs(
    response: DescribeConfigsResponse,
) -> tuple[dict[str, list[ConfigEntry]] | None, ClientError | None]:
    found: dict[str, list[ConfigEntry]] = {}
    for result in response.results:
        if result.error_code:
            subject = f"configs of {result.resource_name}"
            return None, broker_error(result.error_code, subject, result.error_message)
        found[result.resource_name] = [
            ConfigEntry(
                entry.name,
                entry.value,
                _SOURCES.get(entry.config_source, "unknown"),
                entry.config_source == _DEFAULT_SOURCE,
                entry.read_only,
                entry.is_sensitive,
            )
            for entry in result.configs
        ]
    return found, None
