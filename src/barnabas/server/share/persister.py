"""Reads and writes the state of share partitions at their share coordinators (KIP-932).

Kafka's DefaultStatePersister and PersisterStateManager. Each method takes the request of one group
with any topics and partitions. The share partitions are divided among their coordinators. Parts of
several calls that wait for the same coordinator are sent together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.coordinator.share import state_api
from barnabas.coordinator.share.share_coordinator import SHARE_GROUP_TOPIC
from barnabas.coordinator.share.share_partition_state import SharePartitionKey
from barnabas.protocol.errors import ErrorCode
from barnabas.server.peers.peer_queues import Backoff, PeerQueues, PeerSettings, take_distinct
from barnabas.waiting.steps import run_in_slices

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterable

    from barnabas.coordinator.share.share_coordinator import ShareCoordinator
    from barnabas.coordinator.share.state_api import StateApi
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
    from barnabas.server.controller_access.auto_topics import AutoTopics
    from barnabas.server.peers.peer_queues import PartsRequest, PeerDependencies


# All retries take 13 s, which is enough to elect another coordinator. Kafka's first delay is 1 s.
_BACKOFF = Backoff(first_ms=100.0, retries_max=7, factor=2.0, together_ms=10.0)
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


# Results by topic id and partition.
_Results = dict[tuple[bytes, int], Any]


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


class Persister:
    """The broker's access to share coordinators, here and on other brokers.

    Each method calls `on_response` exactly once, perhaps before it returns. The response has each
    partition of the request once, with an error code of its own. A failure of the network or of a
    coordinator is the error of the partitions that it affects, after several retries.
    """

    def __init__(
        self, coordinator: ShareCoordinator, auto_topics: AutoTopics, peers: PeerDependencies
    ) -> None:
        """Create the persister.

        Args:
            coordinator: serves share partitions whose coordinator is this broker.
            auto_topics: creates the state topic.
            peers: access to other brokers.
        """
        self._coordinator = coordinator
        self._auto_topics = auto_topics
        self._clock, self._timer = peers.clock, peers.timer
        # The queues by API.
        self._queues = {
            api.key: PeerQueues(
                self,
                PeerSettings(
                    "share-persister",
                    api.version,
                    _QUEUE_MAX,
                    no_leader=ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    no_room=ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ),
                peers,
            )
            for api in state_api.ALL
        }

    def initialize(
        self,
        request: InitializeShareGroupStateRequest,
        on_response: Callable[[InitializeShareGroupStateResponse], None],
    ) -> None:
        """Create the state of share partitions, or replace it in a newer state epoch."""
        self._begin(state_api.INITIALIZE, request, on_response)

    def read(
        self,
        request: ReadShareGroupStateRequest,
        on_response: Callable[[ReadShareGroupStateResponse], None],
    ) -> None:
        """Read start offsets and state batches. A newer leader epoch is stored."""
        self._begin(state_api.READ, request, on_response)

    def write(
        self,
        request: WriteShareGroupStateRequest,
        on_response: Callable[[WriteShareGroupStateResponse], None],
    ) -> None:
        """Write start offsets and changed state batches."""
        self._begin(state_api.WRITE, request, on_response)

    def delete(
        self,
        request: DeleteShareGroupStateRequest,
        on_response: Callable[[DeleteShareGroupStateResponse], None],
    ) -> None:
        """Delete the state of share partitions. Missing state is no error."""
        self._begin(state_api.DELETE, request, on_response)

    def read_summary(
        self,
        request: ReadShareGroupStateSummaryRequest,
        on_response: Callable[[ReadShareGroupStateSummaryResponse], None],
    ) -> None:
        """Read epochs, start offsets and delivery complete counts without state batches."""
        self._begin(state_api.READ_SUMMARY, request, on_response)

    def _begin(self, api: StateApi, request: Any, on_response: Callable[[Any], None]) -> None:
        parts = _Call(api, request, on_response).parts(request)
        if parts:
            self.dispatch(parts)

    def dispatch(self, parts: list[_Part]) -> None:
        """Send parts of one API to their coordinators."""
        own: dict[_Call, list[_Part]] = {}
        for part in self._queues[parts[0].call.api.key].dispatch(parts):
            own.setdefault(part.call, []).append(part)
        for call, some in own.items():
            self._serve(call, some)

    def partition_of(self, part: _Part) -> tuple[str, int] | None:
        """Return the partition with the state of a share partition."""
        partition = self._coordinator.runtime.partition_for(part.key.coordinator_key)
        if partition is None:
            self._auto_topics.create([SHARE_GROUP_TOPIC])
            return None
        return SHARE_GROUP_TOPIC, partition

    # The coordinator of this broker.

    def _serve(self, call: _Call, parts: list[_Part]) -> None:
        request = _request(call.api, call.group_id, parts)

        def run() -> None:
            run_in_slices(served.steps(), self._clock, self._timer.call_soon, done)

        def done(response: Message | None) -> None:
            if response is not None:
                results = self.results_of(response)
                for part in parts:
                    self.on_result(part, results)

        served = self._coordinator.request(call.api, request, run)
        run()

    # Requests to other coordinators.

    def take(self, waiting: deque[_Part]) -> list[_Part]:
        """Return parts of one group.

        A request has each share partition once: later changes of it wait for the next request.
        """
        group_id = waiting[0].call.group_id if waiting else ""

        def key_of(part: _Part) -> SharePartitionKey | None:
            return part.key if part.call.group_id == group_id else None

        return take_distinct(waiting, _BATCH_MAX, key_of)

    def make_request(self, request: PartsRequest[_Part]) -> None:
        """Make the request."""
        call = request.parts[0].call
        request.send(_request(call.api, call.group_id, request.parts))

    def results_of(self, response: Any) -> _Results:
        """Return the results of a response."""
        return {
            (topic.topic_id, each.partition): each
            for topic in response.results
            for each in topic.partitions
        }

    def on_result(self, part: _Part, results: _Results) -> None:
        """Complete a part with its result, or retry it."""
        result = results.get((part.key.topic_id, part.key.partition))
        if result is None:
            error = ErrorCode.UNKNOWN_SERVER_ERROR
            message = "the response of the share coordinator lacks the share partition"
            result = part.call.api.refuse(part.key.partition, error, message)
        if result.error_code not in _RETRIED or not self._queues[part.call.api.key].retry(
            part, _BACKOFF
        ):
            part.call.note(part.key, result)

    def on_failed(self, part: _Part, error: ErrorCode) -> None:
        """Complete a part whose request has failed, or retry it."""
        key = part.key
        self.on_result(
            part, {(key.topic_id, key.partition): part.call.api.refuse(key.partition, error)}
        )


def _request(api: StateApi, group_id: str, parts: Iterable[_Part]) -> Message:
    topics: dict[bytes, list[Any]] = {}
    for part in parts:
        topics.setdefault(part.key.topic_id, []).append(part.requested)
    return api.make_request(group_id, topics)
