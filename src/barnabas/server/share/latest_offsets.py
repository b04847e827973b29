"""Finds the latest offsets of partitions at their leaders (Kafka: NetworkPartitionMetadataClient).

The group coordinator computes the lag of share groups with them (KIP-1226).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.replication.partition.fetch_params import CONSUMER_REPLICA_ID
from barnabas.replication.partition.offset_lookup import LATEST
from barnabas.server.peers.broker_requests import BrokerRequests, RequestSettings
from barnabas.storage.read_result import FetchIsolation
from barnabas.storage.topic_partition import TopicPartition
from barnabas.waiting.steps import run_in_slices

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Collection, Generator, Mapping

    from barnabas.protocol.messages.list_offsets import ListOffsetsResponse
    from barnabas.replication.fetcher.leader_channels import LeaderChannels
    from barnabas.replication.partition.results import ListOffsetResult
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.timer import Timer
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.peers.broker_requests import PartsRequest

    Offsets = dict[TopicPartition, int | ErrorCode]

_VERSION = 7
# Delay before a request is sent again after a failure of the network, in ms, and their number.
_RETRY_MS = 500.0
_RETRIES_MAX = 5
# Waiting lookups at one broker.
_QUEUE_MAX = 1_000
# Partitions after which a request gets no further lookup.
_BATCH_PARTITIONS_MAX = 2_000
_READ_UNCOMMITTED = 0


class _Lookup(msgspec.Struct, eq=False):
    """One call of `find`."""

    on_found: Callable[[Offsets], None]
    # Partitions without a result.
    waiting: set[TopicPartition]
    found: Offsets = msgspec.field(default_factory=dict)

    def note(self, results: Mapping[TopicPartition, int | ErrorCode]) -> None:
        """Store results; respond after the last one."""
        self.found.update(results)
        self.waiting -= results.keys()
        if not self.waiting:
            self.on_found(self.found)


class _Part(msgspec.Struct, eq=False):
    """The partitions of a lookup that one broker leads."""

    lookup: _Lookup
    partitions: list[TopicPartition]
    retries: int = 0


class LatestOffsets:
    """Finds high watermarks, here and at other brokers."""

    __slots__ = ("_clock", "_cluster", "_node_id", "_replicas", "_requests", "_timer")

    def __init__(
        self,
        node_id: int,
        cluster: ClusterView,
        replicas: ReplicaManager,
        times: tuple[Clock, Timer],
        channels: LeaderChannels | None,
    ) -> None:
        """Create the finder.

        Args:
            node_id: this broker.
            cluster: the leaders of partitions.
            replicas: the partitions of this broker.
            times: the clock of slices, and the timer of retries.
            channels: opens connections to other brokers; None in a cluster of one node.
        """
        self._node_id = node_id
        self._cluster = cluster
        self._replicas = replicas
        self._clock, self._timer = times
        settings = RequestSettings(f"broker-{node_id}-latest-offsets", _VERSION, _QUEUE_MAX)
        self._requests = BrokerRequests(self, settings, self._timer, channels)

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
        self._dispatch(_Lookup(on_found, set(partitions)), list(partitions), retries=0)

    def _dispatch(self, lookup: _Lookup, partitions: list[TopicPartition], retries: int) -> None:
        """Look up partitions at their current leaders."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for each in partitions:
            found = self._cluster.partition(each.topic, each.partition)
            leader = -1 if found is None else found.leader
            by_leader.setdefault(leader, []).append(each)
        for leader, some in by_leader.items():
            if leader == self._node_id:
                run_in_slices(self._look_up(some), self._clock, self._timer.call_soon, lookup.note)
            elif leader < 0 or not self._requests.add(leader, (_Part(lookup, some, retries),)):
                lookup.note(dict.fromkeys(some, ErrorCode.LEADER_NOT_AVAILABLE))

    def _look_up(self, partitions: list[TopicPartition]) -> Generator[None, None, Offsets]:
        """Return the offsets of partitions of this broker. Yields after each one."""
        found: Offsets = {}
        for each in partitions:
            found[each] = self._latest(each)
            yield
        return found

    def _latest(self, where: TopicPartition) -> int | ErrorCode:
        steps = self._replicas.list_offset(where, LATEST, FetchIsolation.HIGH_WATERMARK, -1)
        try:
            next(steps)
        except StopIteration as end:
            result: ListOffsetResult = end.value
            return result.offset if result.error is ErrorCode.NONE else result.error
        raise AssertionError(f"the lookup of the latest offset of {where} read records")

    # Other brokers.

    def take(self, waiting: deque[_Part]) -> list[_Part]:
        """Return the lookups of the next request, see `RequestContent`."""
        taken: list[_Part] = []
        partitions = 0
        while waiting and partitions < _BATCH_PARTITIONS_MAX:
            taken.append(waiting.popleft())
            partitions += len(taken[-1].partitions)
        return taken

    def make_request(self, request: PartsRequest[_Part]) -> None:
        """Request the partitions of the lookups, each of them once."""
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for each in dict.fromkeys(each for part in request.parts for each in part.partitions):
            topics.setdefault(each.topic, []).append(
                ListOffsetsPartition(partition_index=each.partition, timestamp=LATEST)
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

    def read(self, response: ListOffsetsResponse) -> Offsets:
        """Return the results of a response."""
        return {
            TopicPartition(topic.name, each.partition_index): each.offset
            if each.error_code == ErrorCode.NONE
            else ErrorCode.of(each.error_code)
            for topic in response.topics
            for each in topic.partitions
        }

    def on_result(self, part: _Part, results: Offsets) -> None:
        """Store the results of a lookup; UNKNOWN_TOPIC_OR_PARTITION for missing ones."""
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        part.lookup.note({each: results.get(each, missing) for each in part.partitions})

    def on_failed(self, part: _Part, error: ErrorCode) -> None:
        """Repeat a lookup after a failure of the network; other errors are its result."""
        is_unexpected = error is ErrorCode.UNKNOWN_SERVER_ERROR
        if is_unexpected or part.retries >= _RETRIES_MAX:
            result = error if is_unexpected else ErrorCode.NETWORK_EXCEPTION
            part.lookup.note(dict.fromkeys(part.partitions, result))
            return
        # Another broker may lead the partitions by then.
        again = partial(self._dispatch, part.lookup, part.partitions, part.retries + 1)
        self._timer.call_later(_RETRY_MS, again)
