"""Fetch requests: at most one in flight per node, each node with a fetch session (KIP-227).

This layer does not track positions. The caller passes the wanted partitions and receives the
response by partition. A node is free after its request has ended, or after a backoff. Requests name
topics by their ids where brokers support it (KIP-516).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.client.connections.connections import Call
from barnabas.client.connections.versions import FETCH_MAX_BY_NAME
from barnabas.client.errors import ClientError, broker_error
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.fetch_session_handler import FetchSessionHandler
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.client.config import ClientConfig
    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.retries import RetryTimer
    from barnabas.protocol.fetch_session_handler import FetchSessionRequest
    from barnabas.protocol.messages.fetch import PartitionData
    from barnabas.protocol.schema import Message

__all__ = ["FetchLimits", "FetchPosition", "NodeFetches"]

# First version with fetch sessions.
_SESSIONS_FROM = 7
_RACK_FROM = 11
# Timeout for closing sessions; an unclosed session costs the broker little.
_END_SESSIONS_MS = 1_000.0
_TOPIC_ID_ERRORS = frozenset({
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
})  # fmt: skip


class FetchPosition(NamedTuple):
    """The fetch parameters of one partition; the broker's fetch session caches the last ones."""

    offset: int
    # Epoch of the leader with which the offset is valid.
    leader_epoch: int
    # Limit of the record bytes in a response.
    max_bytes: int
    # All zero if the topic has no id.
    topic_id: bytes


class FetchLimits(NamedTuple):
    """The fields that every fetch request of a client has."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    # 1 for read_committed, 0 for read_uncommitted.
    isolation_level: int
    # Rack of the client; brokers may then name a closer replica (KIP-392).
    rack: str

    @classmethod
    def of(cls, config: ClientConfig, rack: str = "") -> FetchLimits:
        """Return the limits that the configuration specifies."""
        isolation = 1 if config.isolation_level == "read_committed" else 0
        return cls(
            config.fetch_max_wait_ms,
            config.fetch_min_bytes,
            config.fetch_max_bytes,
            isolation,
            rack,
        )


def build_fetch_request(
    request: FetchSessionRequest[TopicPartition, FetchPosition], version: int, limits: FetchLimits
) -> FetchRequest:
    """Return the consumer's Fetch request for `request` at `version`."""
    topics: dict[tuple[str, bytes], FetchTopic] = {}
    for tp, position in request.to_send.items():
        topic = topics.get((tp.topic, position.topic_id))
        if topic is None:
            topic = FetchTopic(topic=tp.topic, topic_id=position.topic_id, partitions=[])
            topics[tp.topic, position.topic_id] = topic
        topic.partitions.append(
            FetchPartition(
                partition=tp.partition,
                current_leader_epoch=position.leader_epoch,
                fetch_offset=position.offset,
                partition_max_bytes=position.max_bytes,
            )
        )
    made = FetchRequest(
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=limits.isolation_level,
        topics=list(topics.values()),
    )
    if version >= _SESSIONS_FROM:
        made.session_id = request.session_id
        made.session_epoch = request.session_epoch
        made.forgotten_topics_data = _forgotten(request.to_forget)
    if version >= _RACK_FROM:
        made.rack_id = limits.rack
    return made


def _forgotten(partitions: Mapping[TopicPartition, bytes]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, bytes], ForgottenTopic] = {}
    for tp, topic_id in partitions.items():
        topic = topics.get((tp.topic, topic_id))
        if topic is None:
            topic = ForgottenTopic(topic=tp.topic, topic_id=topic_id, partitions=[])
            topics[tp.topic, topic_id] = topic
        topic.partitions.append(tp.partition)
    return list(topics.values())


Wanted = dict[TopicPartition, FetchPosition]


class FetchListener(Protocol):
    """Tracks positions and handles responses."""

    def on_partition(
        self, tp: TopicPartition, requested: FetchPosition, data: PartitionData
    ) -> None:
        """Handle one partition of a response; memory views in `data` are valid during the call."""
        ...

    def on_response_end(self, elapsed_ms: float) -> None:
        """Handle the end of a response; its node can receive the next request."""
        ...

    def on_fatal_error(self, partitions: Iterable[TopicPartition], error: ClientError) -> None:
        """Handle a request that failed with an error that is not retriable."""
        ...

    def on_no_response(self, node_id: int, partitions: Iterable[TopicPartition]) -> None:
        """Handle a request without a response; the node is free again after a backoff."""
        ...

    def on_node_free(self) -> None:
        """Handle a node that became free after a backoff or a session reset."""
        ...


class _Node:
    """State of one node: its session, and whether a request is in flight."""

    __slots__ = ("error", "in_flight", "retry", "session")

    def __init__(self, retry: RetryTimer) -> None:
        self.session = FetchSessionHandler[TopicPartition, FetchPosition]()
        # Error of the last request if it got no response, else None.
        self.error: ClientError | None = None
        # Whether a request is in flight. Set by `send`, cleared by its end.
        self.in_flight = False
        # Delays the next request; counts failures since the last valid response. Invariant: not
        # scheduled while a request is in flight.
        self.retry = retry


class NodeFetches:
    """Sends fetch requests and passes the responses to the listener.

    Args:
        cluster: sends requests to nodes.
        limits: wait time and sizes of every request.
        listener: receives the responses.
    """

    def __init__(self, cluster: Cluster, limits: FetchLimits, listener: FetchListener) -> None:
        self._cluster = cluster
        self._limits = limits
        self._listener = listener
        self._clock = cluster.runtime.clock
        self._nodes: dict[int, _Node] = {}
        self._closed = False
        # Number of requests sent so far.
        self.sent = 0

    def trouble(self, node_ids: Iterable[int]) -> ClientError | None:
        """Return the error of a node that does not respond, None if all of them do."""
        nodes = (self._nodes.get(node_id) for node_id in node_ids)
        return next((node.error for node in nodes if node and node.error is not None), None)

    @property
    def session_ids(self) -> dict[int, int]:
        """The ids of open sessions, by node id."""
        found = {node_id: node.session.session_id for node_id, node in self._nodes.items()}
        return {node_id: session_id for node_id, session_id in found.items() if session_id}

    def is_free(self, node_id: int) -> bool:
        """Whether a request may be sent to the node now."""
        node = self._nodes.get(node_id)
        return node is None or not (node.in_flight or node.retry.is_scheduled)

    def send(self, node_id: int, wanted: Wanted) -> None:
        """Send a fetch for `wanted` to a free node; a fetch session omits unchanged partitions."""
        node = self._nodes.get(node_id)
        if node is None:
            node = self._nodes[node_id] = _Node(self._cluster.retry_timer())
        assert self.is_free(node_id), (node_id, node.in_flight, node.retry.due_ms)
        request = node.session.build_all(wanted)
        node.in_flight = True
        self.sent += 1
        sent_ms = self._clock.monotonic_ms()

        def build(version: int) -> Message:
            return build_fetch_request(request, version, self._limits)

        def on_done(response: Message | None, error: ClientError | None) -> None:
            node.in_flight = False
            if self._closed:
                return
            if response is None:
                assert error is not None
                self._on_request_failed(node, wanted, error)
                self._listener.on_no_response(node_id, wanted)
            else:
                assert isinstance(response, FetchResponse)
                self._on_response(node, wanted, response, sent_ms)

        max_version = None if request.uses_topic_ids else FETCH_MAX_BY_NAME
        timeout_ms = self._limits.max_wait_ms + self._cluster.config.request_timeout_ms
        self._cluster.call(node_id, Call(ApiKey.FETCH, build, on_done, timeout_ms, max_version))

    def end_sessions(self, on_done: Callable[[], None]) -> None:
        """Stop fetching and close the sessions of all nodes; then call `on_done`.

        `on_done` may run before this returns. The requests use other connections, because a fetch
        may still be pending on the usual ones. A broker removes unclosed sessions when it needs the
        space.
        """
        self._closed = True
        finals = {
            node_id: final
            for node_id, node in self._nodes.items()
            if node.error is None
            and node_id in self._cluster.metadata.nodes
            and (final := node.session.build_final()) is not None
        }
        # Nodes whose response is pending; `on_done` is called when it becomes empty.
        waiting = set(finals)

        def end(nodes: Iterable[int]) -> None:
            if waiting:
                waiting.difference_update(nodes)
                if not waiting:
                    limit.cancel()
                    on_done()

        if not finals:
            on_done()
            return
        timer = self._cluster.runtime.timer
        limit = timer.call_later(_END_SESSIONS_MS, partial(end, tuple(finals)))
        limits = self._limits._replace(max_wait_ms=0)
        for node_id, final in finals.items():
            build = partial(build_fetch_request, final, limits=limits)

            def on_answer(_response: object, _error: object, node_id: int = node_id) -> None:
                end((node_id,))

            self._cluster.call_coordinator(node_id, Call(ApiKey.FETCH, build, on_answer))

    def close(self) -> None:
        """Ignore all pending responses."""
        self._closed = True

    def _on_request_failed(self, node: _Node, wanted: Wanted, error: ClientError) -> None:
        """Handle a request without a response: reset the session and retry after a backoff."""
        node.session.reset()
        node.error = error
        if not error.retriable:
            self._listener.on_fatal_error(wanted, error)
            return
        self._cluster.request_update()
        node.retry.retry(self._listener.on_node_free)

    def _on_response(
        self, node: _Node, wanted: Wanted, response: FetchResponse, sent_ms: float
    ) -> None:
        node.error = None
        node.session.on_response(ErrorCode.of(response.error_code), response.session_id)
        if response.error_code:
            self._on_session_error(node, response.error_code)
            return
        names = self._cluster.metadata.names
        unrequested: TopicPartition | None = None
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id)
            if name is None:
                continue
            for partition in topic.partitions:
                tp = TopicPartition(name, partition.partition_index)
                requested = wanted.get(tp)
                if requested is None:
                    unrequested = tp
                else:
                    self._listener.on_partition(tp, requested, partition)
        if unrequested is None:
            node.retry.reset()
        else:
            self._on_unrequested(node, unrequested)
        self._listener.on_response_end(self._clock.monotonic_ms() - sent_ms)

    def _on_unrequested(self, node: _Node, tp: TopicPartition) -> None:
        """Handle an unrequested partition: reset the session and retry after a backoff."""
        node.session.reset()
        subject = f"fetch response with {tp}, which was not requested"
        node.error = broker_error(ErrorCode.UNKNOWN_SERVER_ERROR, subject)
        # The cached names of topic ids may be outdated.
        self._cluster.request_update()
        node.retry.retry(self._listener.on_node_free)

    def _on_session_error(self, node: _Node, error_code: int) -> None:
        """Handle a lost session or a changed topic id: the next request is a full one."""
        if error_code in _TOPIC_ID_ERRORS:
            self._cluster.request_update()
        if node.retry.failures or error_code not in (
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
            ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ):
            node.retry.retry(self._listener.on_node_free)
            return
        node.retry.count_failure()
        self._listener.on_node_free()
