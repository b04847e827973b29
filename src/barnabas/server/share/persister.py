"""Reads and writes the state of share partitions at their share coordinators (KIP-932).

Kafka's DefaultStatePersister and PersisterStateManager. Each method takes the request of one group
with any topics and partitions. The share partitions are divided among their coordinators. Parts of
several calls that wait for the same coordinator are sent together.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.coordinator.share import state_api
from barnabas.coordinator.share.share_coordinator import SHARE_GROUP_TOPIC
from barnabas.coordinator.share.share_partition_key import SharePartitionKey
from barnabas.network.network_error import NetworkErrorKind
from barnabas.protocol.errors import ErrorCode
from barnabas.waiting.steps import run_in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.coordinator.share.share_coordinator import ShareCoordinator
    from barnabas.coordinator.share.state_api import StateApi
    from barnabas.network.network_error import NetworkError
    from barnabas.protocol.messages.delete_share_group_state import (
        DeleteShareGroupStateRequest,
        DeleteShareGroupStateResponse,
    )
    from barnabas.protocol.messages.initialize_share_group_state import (
        InitializeShareGroupStateRequest,
        InitializeShareGroupStateResponse,
    )
    from barnabas.protocol.messages.read_share_group_state import (
        ReadShareGroupStateRequest,
        ReadShareGroupStateResponse,
    )
    from barnabas.protocol.messages.read_share_group_state_summary import (
        ReadShareGroupStateSummaryRequest,
        ReadShareGroupStateSummaryResponse,
    )
    from barnabas.protocol.messages.write_share_group_state import (
        WriteShareGroupStateRequest,
        WriteShareGroupStateResponse,
    )
    from barnabas.protocol.schema import Message
    from barnabas.replication.fetcher.leader_channels import LeaderChannel, LeaderChannels
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.timer import Timer
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.controller_access.auto_topics import AutoTopics

_TIMEOUT_MS = 30_000.0
# Delay before the first retry, in ms; it doubles with each retry. All retries take 13 s, which is
# enough for the election of another coordinator. Kafka begins with 1 s.
_RETRY_MS = 100.0
_RETRIES_MAX = 7
# Maximum number of share partitions in one request, and of those that wait for one coordinator.
_BATCH_MAX = 500
_QUEUE_MAX = 100_000
# Errors after which the coordinator is looked up again.
_RETRIED = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class _Call:
    """One call of a method: it responds when all share partitions have a result."""

    __slots__ = ("_on_response", "_results", "_waiting", "api", "group_id")

    def __init__(self, api: StateApi, request: Any, on_response: Callable[[Any], None]) -> None:
        self.api = api
        self.group_id: str = request.group_id
        self._on_response = on_response
        self._waiting = 0
        # Results by share partition, in the order of the request. None until there is one.
        self._results: dict[SharePartitionKey, Any] = {}

    def parts(self, request: Any) -> list[_Part]:
        """Return the share partitions of the request."""
        made = [
            _Part(self, SharePartitionKey(self.group_id, topic.topic_id, each.partition), each)
            for topic in request.topics
            for each in topic.partitions
        ]
        self._waiting = len(made)
        self._results = {part.key: None for part in made}
        if not made:
            self._respond()
        return made

    def note(self, key: SharePartitionKey, result: Any) -> None:
        """Store the result of a share partition; respond after the last one."""
        assert self._waiting > 0, f"EveryRequestAnsweredOnce: key={key}"
        self._results[key] = result
        self._waiting -= 1
        if not self._waiting:
            self._respond()

    def _respond(self) -> None:
        topics: dict[bytes, list[Any]] = {}
        for key, result in self._results.items():
            topics.setdefault(key.topic_id, []).append(result)
        self._on_response(self.api.make_response(topics.items()))


class _Part:
    """One share partition of a call, until it has a result."""

    __slots__ = ("call", "key", "requested", "retries")

    def __init__(self, call: _Call, key: SharePartitionKey, requested: Any) -> None:
        self.call = call
        self.key = key
        # Its part of the request.
        self.requested = requested
        self.retries = 0


class _Peer:
    """The queue of one API of one other broker, with one request in flight."""

    __slots__ = ("channel", "is_busy", "queue")

    def __init__(self, channel: LeaderChannel) -> None:
        self.channel = channel
        # Whether a request is in flight.
        self.is_busy = False
        # The parts to send, in the order of their calls.
        self.queue: list[_Part] = []


class Persister:
    """The broker's access to share coordinators, here and on other brokers.

    Each method calls `on_response` exactly once, perhaps before it returns. The response has each
    partition of the request once, with an error code of its own. A failure of the network or of a
    coordinator is the error of the partitions that it affects, after several retries.
    """

    __slots__ = (
        "_auto_topics",
        "_channels",
        "_clock",
        "_cluster",
        "_coordinator",
        "_node_id",
        "_peers",
        "_timer",
    )

    def __init__(
        self,
        node_id: int,
        cluster: ClusterView,
        coordinator: ShareCoordinator,
        auto_topics: AutoTopics,
        times: tuple[Clock, Timer],
        channels: LeaderChannels | None,
    ) -> None:
        """Create the persister.

        Args:
            node_id: this broker.
            cluster: finds the coordinators of share partitions.
            coordinator: serves share partitions whose coordinator is this broker.
            auto_topics: creates the state topic.
            times: measures slices of work, and delays retries.
            channels: opens connections to other brokers; None in a cluster of one node.
        """
        self._node_id = node_id
        self._cluster = cluster
        self._coordinator = coordinator
        self._auto_topics = auto_topics
        self._clock, self._timer = times
        self._channels = channels
        # Queues by broker id and API. Created for the first request, and kept.
        self._peers: dict[tuple[int, int], _Peer] = {}

    def initialize(
        self,
        request: InitializeShareGroupStateRequest,
        on_response: Callable[[InitializeShareGroupStateResponse], None],
    ) -> None:
        """Create the state of share partitions, or replace it in a newer state epoch."""
        self._begin(_Call(state_api.INITIALIZE, request, on_response), request)

    def read(
        self,
        request: ReadShareGroupStateRequest,
        on_response: Callable[[ReadShareGroupStateResponse], None],
    ) -> None:
        """Read start offsets and state batches. A newer leader epoch is stored."""
        self._begin(_Call(state_api.READ, request, on_response), request)

    def write(
        self,
        request: WriteShareGroupStateRequest,
        on_response: Callable[[WriteShareGroupStateResponse], None],
    ) -> None:
        """Write start offsets and changed state batches."""
        self._begin(_Call(state_api.WRITE, request, on_response), request)

    def delete(
        self,
        request: DeleteShareGroupStateRequest,
        on_response: Callable[[DeleteShareGroupStateResponse], None],
    ) -> None:
        """Delete the state of share partitions. Missing state is no error."""
        self._begin(_Call(state_api.DELETE, request, on_response), request)

    def read_summary(
        self,
        request: ReadShareGroupStateSummaryRequest,
        on_response: Callable[[ReadShareGroupStateSummaryResponse], None],
    ) -> None:
        """Read epochs, start offsets and delivery complete counts without state batches."""
        self._begin(_Call(state_api.READ_SUMMARY, request, on_response), request)

    def _begin(self, call: _Call, request: Any) -> None:
        self._dispatch(call, call.parts(request))

    def _dispatch(self, call: _Call, parts: list[_Part]) -> None:
        """Send the parts of a call to their coordinators."""
        local: list[_Part] = []
        remote: dict[int, list[_Part]] = {}
        unknown: list[_Part] = []
        for part in parts:
            leader = self._leader_of(part.key)
            if leader == self._node_id:
                local.append(part)
            elif leader < 0:
                unknown.append(part)
            else:
                remote.setdefault(leader, []).append(part)
        for broker_id, some in remote.items():
            self._enqueue(broker_id, call.api, some)
        self._refuse_all(unknown, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if local:
            self._serve(call, local)

    def _leader_of(self, key: SharePartitionKey) -> int:
        """Return the broker that coordinates a share partition; -1 if there is none now."""
        partition = self._coordinator.runtime.partition_for(key.coordinator_key)
        if partition is None:
            self._auto_topics.create([SHARE_GROUP_TOPIC])
            return -1
        found = self._cluster.partition(SHARE_GROUP_TOPIC, partition)
        return -1 if found is None else found.leader

    # The coordinator of this broker.

    def _serve(self, call: _Call, parts: list[_Part]) -> None:
        request = _request(call.api, call.group_id, parts)

        def run() -> None:
            run_in_slices(served.steps(), self._clock, self._timer.call_soon, done)

        def done(response: Message | None) -> None:
            if response is not None:
                self._on_results(parts, response)

        served = self._coordinator.request(call.api, request, run)
        run()

    # Other brokers.

    def _enqueue(self, broker_id: int, api: StateApi, parts: list[_Part]) -> None:
        peer = self._peers.get((broker_id, api.key))
        if peer is None:
            if self._channels is None:
                self._refuse_all(parts, ErrorCode.COORDINATOR_NOT_AVAILABLE)
                return
            client_id = f"broker-{self._node_id}-share-persister"
            peer = _Peer(self._channels.open(broker_id, client_id))
            self._peers[broker_id, api.key] = peer
        if len(peer.queue) + len(parts) > _QUEUE_MAX:
            self._refuse_all(parts, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        peer.queue += parts
        if not peer.is_busy:
            self._flush(peer, api)

    def _flush(self, peer: _Peer, api: StateApi) -> None:
        """Send the first parts of the queue that belong to one group."""
        group_id = peer.queue[0].call.group_id
        # A request has each share partition once: later changes of it wait for the next request.
        batch: dict[SharePartitionKey, _Part] = {}
        later: list[_Part] = []
        for part in peer.queue:
            is_full = len(batch) >= _BATCH_MAX
            if is_full or part.call.group_id != group_id or part.key in batch:
                later.append(part)
            else:
                batch[part.key] = part
        peer.queue = later
        peer.is_busy = True
        parts = list(batch.values())
        on_response = partial(self._on_response, peer, api, parts)
        peer.channel.send(_request(api, group_id, parts), api.version, on_response, _TIMEOUT_MS)

    def _on_response(
        self,
        peer: _Peer,
        api: StateApi,
        parts: list[_Part],
        response: Message | None,
        error: NetworkError | None,
    ) -> None:
        peer.is_busy = False
        if response is not None:
            self._on_results(parts, response)
        else:
            is_timeout = error is not None and error.kind is NetworkErrorKind.TIMED_OUT
            self._refuse_all(
                parts,
                ErrorCode.REQUEST_TIMED_OUT if is_timeout else ErrorCode.NETWORK_EXCEPTION,
            )
        if peer.queue and not peer.is_busy:
            self._flush(peer, api)

    # Results.

    def _on_results(self, parts: Iterable[_Part], response: Any) -> None:
        results = {
            (topic.topic_id, each.partition): each
            for topic in response.results
            for each in topic.partitions
        }
        retried: dict[_Call, list[_Part]] = {}
        for part in parts:
            result = results.get((part.key.topic_id, part.key.partition))
            if result is None:
                error = ErrorCode.UNKNOWN_SERVER_ERROR
                message = "the response of the share coordinator lacks the share partition"
                result = part.call.api.refuse(part.key.partition, error, message)
            if result.error_code in _RETRIED and part.retries < _RETRIES_MAX:
                retried.setdefault(part.call, []).append(part)
            else:
                part.call.note(part.key, result)
        for call, some in retried.items():
            self._retry(call, some)

    def _refuse_all(self, parts: list[_Part], error: ErrorCode) -> None:
        """Give all parts an error of the lookup or of the network."""
        retried: dict[_Call, list[_Part]] = {}
        for part in parts:
            if part.retries < _RETRIES_MAX:
                retried.setdefault(part.call, []).append(part)
            else:
                part.call.note(part.key, part.call.api.refuse(part.key.partition, error))
        for call, some in retried.items():
            self._retry(call, some)

    def _retry(self, call: _Call, parts: list[_Part]) -> None:
        """Look up the coordinators again after a delay."""
        delay_ms = _RETRY_MS * (1 << max(part.retries for part in parts))
        for part in parts:
            part.retries += 1
        self._timer.call_later(delay_ms, lambda: self._dispatch(call, parts))


def _request(api: StateApi, group_id: str, parts: Iterable[_Part]) -> Message:
    topics: dict[bytes, list[Any]] = {}
    for part in parts:
        topics.setdefault(part.key.topic_id, []).append(part.requested)
    return api.make_request(group_id, topics)
