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
from barnabas.storage.read_result import FetchIsolation
from barnabas.storage.topic_partition import TopicPartition
from barnabas.waiting.steps import run_in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Mapping

    from barnabas.network.network_error import NetworkError
    from barnabas.protocol.messages.list_offsets import ListOffsetsResponse
    from barnabas.replication.fetcher.leader_channels import LeaderChannel, LeaderChannels
    from barnabas.replication.partition.results import ListOffsetResult
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.timer import Timer
    from barnabas.server.cluster.cluster_view import ClusterView

    Offsets = dict[TopicPartition, int | ErrorCode]

_VERSION = 7
_TIMEOUT_MS = 30_000.0
# Delay before a request is sent again after a failure of the network, in ms, and their number.
_RETRY_MS = 500.0
_RETRIES_MAX = 5
# Waiting lookups at one broker.
_QUEUE_MAX = 1_000
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


class _Peer:
    """The queue of one broker, with one request in flight."""

    __slots__ = ("channel", "is_busy", "queue")

    def __init__(self, channel: LeaderChannel) -> None:
        self.channel = channel
        # Whether a request is in flight.
        self.is_busy = False
        self.queue: list[_Part] = []


class LatestOffsets:
    """Finds high watermarks, here and at other brokers."""

    __slots__ = ("_channels", "_clock", "_cluster", "_node_id", "_peers", "_replicas", "_timer")

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
        self._channels = channels
        # Queues by broker id. Created for the first lookup, and kept.
        self._peers: dict[int, _Peer] = {}

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
            elif leader < 0 or self._channels is None:
                lookup.note(dict.fromkeys(some, ErrorCode.LEADER_NOT_AVAILABLE))
            else:
                self._enqueue(leader, self._channels, _Part(lookup, some, retries))

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

    def _enqueue(self, broker_id: int, channels: LeaderChannels, part: _Part) -> None:
        peer = self._peers.get(broker_id)
        if peer is None:
            client_id = f"broker-{self._node_id}-latest-offsets"
            peer = self._peers[broker_id] = _Peer(channels.open(broker_id, client_id))
        if len(peer.queue) >= _QUEUE_MAX:
            part.lookup.note(dict.fromkeys(part.partitions, ErrorCode.REQUEST_TIMED_OUT))
            return
        peer.queue.append(part)
        if not peer.is_busy:
            self._send(peer)

    def _send(self, peer: _Peer) -> None:
        part = peer.queue.pop(0)
        peer.is_busy = True
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for each in part.partitions:
            topics.setdefault(each.topic, []).append(
                ListOffsetsPartition(partition_index=each.partition, timestamp=LATEST)
            )
        request = ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID,
            isolation_level=_READ_UNCOMMITTED,
            topics=[
                ListOffsetsTopic(name=name, partitions=asked) for name, asked in topics.items()
            ],
        )
        on_response = partial(self._on_response, peer, part)
        peer.channel.send(request, _VERSION, on_response, _TIMEOUT_MS)

    def _on_response(
        self,
        peer: _Peer,
        part: _Part,
        response: ListOffsetsResponse | None,
        error: NetworkError | None,
    ) -> None:
        peer.is_busy = False
        if response is not None:
            part.lookup.note(_results(part.partitions, response))
        elif part.retries < _RETRIES_MAX:
            # Another broker may lead the partitions by then.
            again = partial(self._dispatch, part.lookup, part.partitions, part.retries + 1)
            self._timer.call_later(_RETRY_MS, again)
        else:
            assert error is not None, f"partitions={len(part.partitions)}"
            part.lookup.note(dict.fromkeys(part.partitions, ErrorCode.NETWORK_EXCEPTION))
        if peer.queue and not peer.is_busy:
            self._send(peer)


def _results(partitions: list[TopicPartition], response: ListOffsetsResponse) -> Offsets:
    """Return the results of all partitions; UNKNOWN_TOPIC_OR_PARTITION for missing ones."""
    found: Offsets = dict.fromkeys(partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for topic in response.topics:
        for each in topic.partitions:
            where = TopicPartition(topic.name, each.partition_index)
            if where in found:
                error = ErrorCode(each.error_code)
                found[where] = each.offset if error is ErrorCode.NONE else error
    return found
