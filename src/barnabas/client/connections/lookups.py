"""Lookups with requests of their own: topics by name, all topics, and coordinators (KIP-699).

Topics are looked up with retries, because they may have been created recently. The coordinator of a
group or of a transactional id is cached until a call shows that it is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.connections.cluster import ANY_NODE, Cluster
from barnabas.client.connections.connections import Call
from barnabas.client.connections.metadata_cache import ZERO_ID
from barnabas.client.errors import (
    ClientError,
    DisconnectedError,
    UnknownPartitionError,
    UnknownTopicError,
    broker_error,
)
from barnabas.client.retries import RetryingCall
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.client.connections.metadata_cache import TopicInfo
    from barnabas.client.retries import OnDone
    from barnabas.protocol.schema import Message


__all__ = [
    "GROUP",
    "SHARE",
    "TRANSACTION",
    "Coordinators",
    "Sought",
    "TopicLookup",
    "look_up_all_topics",
]

_NO_COORDINATOR = ErrorCode.COORDINATOR_NOT_AVAILABLE
# From this version on a request may contain several keys.
_MANY_FROM = 4
# Key types. The key of a share coordinator consists of group, topic id and partition (KIP-932).
GROUP = 0
TRANSACTION = 1
SHARE = 2
_KIND_NAMES = {GROUP: "group", TRANSACTION: "transactional.id", SHARE: "share partition"}


class Coordinators:
    """Node ids of coordinators by key: by default by group id.

    Args:
        cluster: Sends the FindCoordinator requests.
        key_type: GROUP, TRANSACTION or SHARE.
    """

    def __init__(self, cluster: Cluster, key_type: int = GROUP) -> None:
        self._cluster = cluster
        self._key_type = key_type
        # Node id of the coordinator by group, or by the key of another type; removed by `forget`.
        self._known: dict[str, int] = {}

    def known(self, group: str) -> int | None:
        """Return the cached coordinator of the group, if metadata contains that node; else None."""
        node_id = self._known.get(group)
        return node_id if node_id in self._cluster.metadata.nodes else None

    def forget(self, group: str) -> None:
        """Discard the cached coordinator, so that the next call looks it up again."""
        self._known.pop(group, None)

    def call(
        self,
        group: str,
        api_key: ApiKey,
        build: Callable[[int], Message],
        on_done: OnDone[Message],
        timeout_ms: float | None = None,
        max_version: int | None = None,
    ) -> None:
        """Send a request to the group's coordinator; look the coordinator up if it is unknown.

        Args:
            group: The group's id.
            api_key: The API of the request.
            build: Builds the request for the negotiated version.
            on_done: Called exactly once, possibly before this method returns.
            timeout_ms: Timeout of the request (ms); None for request.timeout.ms.
            max_version: An additional upper limit of the API version.
        """

        def on_response(response: Message | None, error: ClientError | None) -> None:
            if isinstance(error, DisconnectedError):
                # The coordinator may have a new address.
                self._cluster.request_update()
            on_done(response, error)

        def on_found(node_id: int | None, error: ClientError | None) -> None:
            if node_id is None:
                on_done(None, error)
            else:
                call = Call(api_key, build, on_response, timeout_ms, max_version)
                self._cluster.call_coordinator(node_id, call)

        self.find(group, on_found)

    def find(self, group: str, on_found: OnDone[int]) -> None:
        """Find the node that coordinates `group`, with a single attempt."""
        known = self.known(group)
        if known is not None:
            on_found(known, None)
            return

        subject = f"coordinator of {_KIND_NAMES[self._key_type]} {group}"

        def build(version: int) -> Message:
            request = FindCoordinatorRequest(key_type=self._key_type)
            if version >= _MANY_FROM:
                request.coordinator_keys = [group]
            else:
                request.key = group
            return request

        def on_response(response: Message | None, error: ClientError | None) -> None:
            if response is None:
                on_found(None, error)
                return
            assert isinstance(response, FindCoordinatorResponse)
            named = {each.key: each for each in response.coordinators}
            found = named.get(group) if named else response
            if found is None:
                on_found(None, broker_error(_NO_COORDINATOR, subject, "missing in the response"))
            elif found.error_code:
                on_found(None, broker_error(found.error_code, subject, found.error_message))
            else:
                self._known[group] = found.node_id
                self._when_named(group, found.node_id, on_found)

        self._cluster.call(ANY_NODE, Call(ApiKey.FIND_COORDINATOR, build, on_response))

    def _when_named(self, group: str, node_id: int, on_found: OnDone[int]) -> None:
        """Report the node once metadata contains it; otherwise COORDINATOR_NOT_AVAILABLE."""
        if node_id in self._cluster.metadata.nodes:
            on_found(node_id, None)
            return

        def on_refreshed(_none: None, error: ClientError | None) -> None:
            if error is None and node_id not in self._cluster.metadata.nodes:
                # The caller retries after a backoff, as if there were no coordinator.
                self.forget(group)
                subject = f"coordinator of {_KIND_NAMES[self._key_type]} {group}"
                words = f"metadata does not name broker {node_id}"
                error = broker_error(_NO_COORDINATOR, subject, words)
            on_found(node_id if error is None else None, error)

        self._cluster.refresh((), on_refreshed)


# About 1.5 s with the default backoff; by then all brokers know a new topic.
_UNKNOWN_ATTEMPTS = 5


class Sought(NamedTuple):
    """The properties that a lookup expects of its topics."""

    # Ids of the topics by name if the caller has created them; an old broker reports zeros. Each
    # topic must have this id, and a leader for each partition. A broker that lags behind may still
    # describe a deleted topic of the same name, and accept records for it.
    created_ids: Mapping[str, bytes] | None = None
    # Each topic must have a partition of this number, which may have been added recently.
    partition: int = 0
    # Whether a topic may have been created recently, so that some brokers do not know it yet.
    may_be_new: bool = True


_ANY = Sought()


def look_up_all_topics(
    cluster: Cluster, timeout_ms: float, on_done: OnDone[dict[str, TopicInfo]]
) -> None:
    """Refresh the metadata of all topics, with retries, and pass the topics on by name."""

    def attempt(done: OnDone[dict[str, TopicInfo]]) -> None:
        def on_refreshed(_none: None, error: ClientError | None) -> None:
            done(dict(cluster.metadata.topics) if error is None else None, error)

        cluster.refresh(None, on_refreshed)

    RetryingCall(cluster.retry_timer(timeout_ms), "list of topics", attempt, on_done).start()


class TopicLookup:
    """Refreshes metadata until it contains all `topics`, or an error ends the lookup."""

    def __init__(
        self,
        cluster: Cluster,
        topics: Iterable[str],
        timeout_ms: float,
        on_done: OnDone[dict[str, TopicInfo]],
        sought: Sought = _ANY,
    ) -> None:
        self._cluster = cluster
        self._topics = list(dict.fromkeys(topics))
        self._retry = cluster.retry_timer(timeout_ms)
        self._on_done = on_done
        self._sought = sought

    def start(self) -> None:
        """Start the next attempt."""
        self._cluster.refresh(self._topics, self._on_refreshed)

    def _on_refreshed(self, _none: None, error: ClientError | None) -> None:
        if error is None:
            error = self._missing()
            if error is None:
                known = self._cluster.metadata.topics
                self._on_done({name: known[name] for name in self._topics}, None)
                return
        if not error.retriable or self._is_final(error) or not self._retry.retry(self.start):
            self._on_done(None, error)

    def _is_final(self, error: ClientError) -> bool:
        """Return whether the topic is still unknown after enough attempts."""
        if not isinstance(error, UnknownTopicError) or self._sought.created_ids is not None:
            # A slow broker learns of created topics later.
            return False
        return not self._sought.may_be_new or self._retry.failures >= _UNKNOWN_ATTEMPTS - 1

    def _missing(self) -> ClientError | None:
        metadata = self._cluster.metadata
        for name in self._topics:
            code = metadata.errors.get(name, 0)
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return UnknownTopicError(name, metadata.similar(name))
            if code:
                return broker_error(code, name)
            topic = metadata.topics.get(name)
            if topic is None or self._is_deleted(topic):
                return UnknownTopicError(name, metadata.similar(name))
            if self._sought.partition >= len(topic.partitions):
                return UnknownPartitionError(name, self._sought.partition, len(topic.partitions))
            if self._sought.created_ids is not None and len(topic.available) < len(
                topic.partitions
            ):
                return broker_error(ErrorCode.LEADER_NOT_AVAILABLE, name)
        return None

    def _is_deleted(self, topic: TopicInfo) -> bool:
        """Return whether this is a topic that was deleted before the caller created its own."""
        created = (self._sought.created_ids or {}).get(topic.name, ZERO_ID)
        return created not in (ZERO_ID, topic.topic_id)
