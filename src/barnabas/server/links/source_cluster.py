"""The connections of a link to its source cluster, by the client of this project.

So a link has the client's configuration, with TLS and SASL, its lookups of leaders, and its backoff
of connection attempts.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.client.admin.sender import AdminSender
from barnabas.client.config import ClientConfig
from barnabas.client.connections.cluster import ANY_NODE, Cluster
from barnabas.client.connections.connections import (
    SOFTWARE_NAME,
    SOFTWARE_VERSION,
    Call,
    Connections,
)
from barnabas.client.connections.lookups import Coordinators
from barnabas.client.connections.versions import CLIENT_VERSIONS
from barnabas.network.network_error import NetworkError, NetworkErrorKind
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.connection import ApiVersionsRequest, ApiVersionsResponse
from barnabas.replication.links.mirror_replicas import SourcePlace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.client.errors import ClientError
    from barnabas.protocol.schema import Message
    from barnabas.replication.fetcher.leader_channels import OnResponse
    from barnabas.runtime.loop import Runtime
    from barnabas.storage.topic_partition import TopicPartition

# The version of Fetch before the source's are known, and the highest one that a link sends.
_FETCH_VERSION_MIN, _FETCH_VERSION_MAX = CLIENT_VERSIONS[ApiKey.FETCH]


class SourceCluster:
    """The client of one link. It implements `LeaderChannels`."""

    def __init__(self, runtime: Runtime, link: str, keys: Mapping[str, str]) -> None:
        """Create the client. Nothing is connected yet.

        Raises:
            ClientConfigError: a key of the client's config is unknown or has an invalid value.
        """
        config = ClientConfig.parse({"client.id": f"link-{link}", **keys})
        self._timer = runtime.timer
        self.cluster = Cluster(runtime, config)
        self.cluster.allow_auto_creation = False
        self.admin = AdminSender(self.cluster, Coordinators(self.cluster))
        # Connections of the fetchers: a pending fetch would delay other requests.
        self._fetching = Connections(runtime, config)
        # The highest version of Fetch that a broker of the source supports.
        self.fetch_version = _FETCH_VERSION_MIN
        self.has_versions = False
        self._is_closed = False

    def open(self, broker_id: int, client_id: str) -> SourceChannel:
        """Return a channel to a broker of the source, not yet connected."""
        del client_id
        return SourceChannel(self, broker_id)

    def place(self, key: TopicPartition) -> SourcePlace | None:
        """Return the leader of a partition, or None if it is not known."""
        topic = self.cluster.metadata.topics.get(key.topic)
        info = None if topic is None else topic.partitions.get(key.partition)
        if topic is None or info is None or info.leader not in self.cluster.metadata.nodes:
            return None
        return SourcePlace(info.leader, info.leader_epoch, topic.topic_id)

    def learn_versions(self) -> None:
        """Ask a broker which versions of Fetch the source supports."""

        def on_done(response: Message | None, error: ClientError | None) -> None:
            del error
            if isinstance(response, ApiVersionsResponse) and not response.error_code:
                offered = {each.api_key: each.max_version for each in response.api_keys}
                highest = offered.get(ApiKey.FETCH, _FETCH_VERSION_MIN)
                self.fetch_version = min(_FETCH_VERSION_MAX, highest)
                self.has_versions = True

        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
        )
        self.cluster.call(ANY_NODE, Call(ApiKey.API_VERSIONS, lambda _: request, on_done))

    def send(
        self,
        broker_id: int,
        request: Message,
        version: int,
        on_response: OnResponse,
        timeout_ms: float,
    ) -> None:
        """Send a request of a fetcher, see `LeaderChannel.send`."""
        info = self.cluster.metadata.nodes.get(broker_id)
        if info is None:
            unknown = NetworkError(NetworkErrorKind.CONNECT_FAILED, "the broker has no address")
            self._timer.call_soon(partial(on_response, None, unknown))
            return

        def on_done(response: Any, error: ClientError | None) -> None:
            if error is None:
                on_response(response, None)
                return
            if not self._is_closed:
                self.cluster.request_update()
            failed = NetworkError(NetworkErrorKind.DISCONNECTED, str(error))
            self._timer.call_soon(partial(on_response, None, failed))

        api_key = ApiKey(request.__api_key__)
        self._fetching.call(info, Call(api_key, lambda _: request, on_done, timeout_ms, version))

    def drop(self, broker_id: int) -> None:
        """Close the connection of a fetcher."""
        self._fetching.drop(broker_id)

    def is_connected(self, broker_id: int) -> bool:
        """Whether the connection of a fetcher is open."""
        info = self.cluster.metadata.nodes.get(broker_id)
        return info is not None and self._fetching.is_ready(info)

    def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        self._fetching.close()
        self.cluster.close()


class SourceChannel:
    """The connection of one fetcher to a broker of the source. It implements `LeaderChannel`."""

    __slots__ = ("_broker_id", "_source", "connections_created")

    def __init__(self, source: SourceCluster, broker_id: int) -> None:
        self._source = source
        self._broker_id = broker_id
        # The client counts its connections itself.
        self.connections_created = 0

    @property
    def is_connected(self) -> bool:
        """Whether the connection is open."""
        return self._source.is_connected(self._broker_id)

    def send(
        self, request: Message, version: int, on_response: OnResponse, timeout_ms: float
    ) -> None:
        """Send a request, see `LeaderChannel`."""
        self._source.send(self._broker_id, request, version, on_response, timeout_ms)

    def close(self) -> None:
        """Close the connection; `send` opens a new one."""
        self._source.drop(self._broker_id)
