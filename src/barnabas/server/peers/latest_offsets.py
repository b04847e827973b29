"""Finds the latest offsets of partitions at their leaders (Kafka: NetworkPartitionMetadataClient).

The group coordinator computes the lag of share groups with them (KIP-1226).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.log_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.replication.partition.fetch_params import CONSUMER_REPLICA_ID
from barnabas.replication.partition.offset_lookup import LATEST
from barnabas.server.peers.own_broker_channel import offset_without_reading
from barnabas.server.peers.peer_queues import Backoff, PeerQueues, PeerSettings
from barnabas.storage.results import FetchIsolation
from barnabas.storage.topic_partition import TopicPartition
from barnabas.waiting.steps import run_in_slices

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Collection, Generator

    from barnabas.protocol.messages.log_offsets import ListOffsetsResponse
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.server.peers.peer_queues import PartsRequest, PeerDependencies

    Offsets = dict[TopicPartition, int | ErrorCode]

_VERSION = 7
# Retries after a failure of the network. Another broker may lead the partition by then.
_BACKOFF = Backoff(first_ms=500.0, retries_max=5)
_RETRIED = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})
# Partitions that wait for one broker, and those in one request.
_QUEUE_MAX = 100_000
_BATCH_MAX = 2_000
_READ_UNCOMMITTED = 0
_ANY_EPOCH = -1


class _Lookup(msgspec.Struct, eq=False):
    """One call of `find`."""

    on_found: Callable[[Offsets], None]
    # Number of partitions without a result.
    waiting: int
    found: Offsets = msgspec.field(default_factory=dict)


class _Part(msgspec.Struct, eq=False):
    """One partition of a lookup."""

    lookup: _Lookup
    key: TopicPartition
    retries: int = 0

    def note(self, result: int | ErrorCode) -> None:
        """Store the result of the partition; respond after the last one."""
        lookup = self.lookup
        lookup.found[self.key] = result
        lookup.waiting -= 1
        if not lookup.waiting:
            lookup.on_found(lookup.found)


class LatestOffsets:
    """Finds high watermarks, here and at other brokers."""

    def __init__(
        self, replicas: ReplicaManager, peers: PeerDependencies, timestamp: int = LATEST
    ) -> None:
        """Create the finder.

        Args:
            replicas: the partitions of this broker.
            peers: access to other brokers.
            timestamp: a special timestamp of ListOffsets for which leaders read no records.
        """
        self._replicas = replicas
        self._timestamp = timestamp
        self._clock, self._timer = peers.clock, peers.timer
        settings = PeerSettings(
            "latest-offsets",
            _VERSION,
            _QUEUE_MAX,
            no_leader=ErrorCode.LEADER_NOT_AVAILABLE,
            no_room=ErrorCode.LEADER_NOT_AVAILABLE,
        )
        self._queues = PeerQueues(self, settings, peers)

    def find(
        self, partitions: Collection[TopicPartition], on_found: Callable[[Offsets], None]
    ) -> None:
        """Find the latest offset, or an error, of each partition.

        Args:
            partitions: distinct partitions, at least one.
            on_found: gets an offset or an error for each partition; called once, perhaps before
                this returns.
        """
        assert partitions, "a lookup without partitions has no result"
        lookup = _Lookup(on_found, len(partitions))
        self.dispatch([_Part(lookup, key) for key in partitions])

    def dispatch(self, parts: list[_Part]) -> None:
        """Look up partitions at their current leaders."""
        own = self._queues.dispatch(parts)
        run_in_slices(self._look_up(own), self._clock, self._timer.call_soon, lambda _: None)

    def _look_up(self, parts: list[_Part]) -> Generator[None, None, None]:
        """Look up partitions of this broker. Yields after each one."""
        for part in parts:
            part.note(self._latest(part.key))
            yield

    def _latest(self, where: TopicPartition) -> int | ErrorCode:
        result = offset_without_reading(
            self._replicas, where, (self._timestamp, _ANY_EPOCH), FetchIsolation.HIGH_WATERMARK
        )
        return result.offset if result.error is ErrorCode.NONE else result.error

    # Requests to other brokers: ListOffsets.

    def partition_of(self, part: _Part) -> TopicPartition:
        """Return the partition."""
        return part.key

    def take(self, waiting: deque[_Part]) -> list[_Part]:
        """Return the first parts."""
        return [waiting.popleft() for _ in range(min(_BATCH_MAX, len(waiting)))]

    def make_request(self, request: PartsRequest[_Part]) -> None:
        """Request each partition once."""
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for key in dict.fromkeys(part.key for part in request.parts):
            topics.setdefault(key.topic, []).append(
                ListOffsetsPartition(partition_index=key.partition, timestamp=self._timestamp)
            )
        request.send(
            ListOffsetsRequest(
                replica_id=CONSUMER_REPLICA_ID,
                isolation_level=_READ_UNCOMMITTED,
                topics=[
                    ListOffsetsTopic(name=name, partitions=asked) for name, asked in topics.items()
                ],
            )
        )

    def results_of(self, response: ListOffsetsResponse) -> Offsets:
        """Return the results of a response."""
        return {
            TopicPartition(topic.name, each.partition_index): each.offset
            if each.error_code == ErrorCode.NONE
            else ErrorCode.of(each.error_code)
            for topic in response.topics
            for each in topic.partitions
        }

    def on_result(self, part: _Part, results: Offsets) -> None:
        """Store the result of a partition; UNKNOWN_TOPIC_OR_PARTITION if it is missing."""
        part.note(results.get(part.key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

    def on_failed(self, part: _Part, error: ErrorCode) -> None:
        """Repeat a lookup after a failure of the network; other errors are its result."""
        if error not in _RETRIED:
            part.note(error)
        elif not self._queues.retry(part, _BACKOFF):
            part.note(ErrorCode.NETWORK_EXCEPTION)
