"""Offsets by timestamp, the ends of partitions, and the ends of leader epochs.

Each round of ListOffsets sends one request per leader (KIP-79, KIP-734). Partitions with a
retriable error are retried after a metadata refresh. A consumer validates its positions with the
end offsets of leader epochs (OffsetForLeaderEpoch, KIP-320).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.connections.connections import Call
from barnabas.client.connections.metadata_cache import NO_LEADER
from barnabas.client.errors import (
    ClientError,
    ClientTimeoutError,
    UnknownPartitionError,
    UnknownTopicError,
    UnsupportedVersionError,
    broker_error,
)
from barnabas.client.topic_partition import TopicPartition, by_topic
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.log_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.retries import OnDone
    from barnabas.protocol.schema import Message

__all__ = [
    "EARLIEST",
    "LATEST",
    "EpochEnd",
    "ListedOffset",
    "OffsetLookup",
    "offset_spec",
    "request_epoch_ends",
]

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
# A topic may have just been created. So it counts as unknown only after this number of attempts,
# which take about 1.5 s.
_UNKNOWN_ATTEMPTS = 5
_NAMES = {
    "latest": LATEST,
    "earliest": EARLIEST,
    "max-timestamp": MAX_TIMESTAMP,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}


class ListedOffset(NamedTuple):
    """The result for one partition."""

    # The offset; -1 if no record is at or after the requested timestamp.
    offset: int
    # Timestamp of the record at `offset` (ms); -1 if EARLIEST or LATEST was requested.
    timestamp: int
    # Leader epoch of the record; -1 if unknown.
    leader_epoch: int


def offset_spec(spec: str | int) -> int:
    """Convert a timestamp in ms, "earliest", "latest" or "max-timestamp" to the protocol's value.

    Raises:
        ValueError: The spec is neither a number nor a known name.
    """
    if isinstance(spec, int):
        return spec
    try:
        return _NAMES[spec]
    except KeyError:
        names = ", ".join(_NAMES)
        raise ValueError(f"{spec} is neither a timestamp in ms nor one of {names}") from None


class OffsetLookup:
    """One lookup of the offsets of any partitions.

    An error of one partition does not stop the lookup of others.

    Args:
        cluster: The cluster to ask.
        specs: The timestamp to look up, by partition; see `offset_spec`.
        isolation_level: 1 for read_committed, 0 for read_uncommitted.
        timeout_ms: Time for retries after retriable errors (ms).
        on_done: Receives the offsets of all partitions, or the first error that is not retriable.
        on_found: Called with each partition's offset as soon as it is found; None if not needed.
    """

    def __init__(
        self,
        cluster: Cluster,
        specs: Mapping[TopicPartition, int],
        isolation_level: int,
        timeout_ms: float,
        on_done: OnDone[dict[TopicPartition, ListedOffset]],
        on_found: Callable[[TopicPartition, ListedOffset], None] | None = None,
    ) -> None:
        self._cluster = cluster
        self._remaining = dict(specs)
        self._isolation_level = isolation_level
        # Delays the next round after a round that left partitions unresolved.
        self._retry = cluster.retry_timer(timeout_ms)
        self._on_done = on_done
        # Called with each partition's offset as soon as it is found.
        self._on_found = on_found
        self._found: dict[TopicPartition, ListedOffset] = {}
        # Number of requests of this round that are in flight.
        self._outstanding = 0
        # The last retriable error of this round.
        self._retry_error: ClientError | None = None
        # The error that is not retriable, if any; it ends the lookup after the round.
        self._error: ClientError | None = None

    def start(self) -> None:
        """Start the lookup, or its next round; metadata is refreshed if it is needed."""
        topics = {tp.topic for tp in self._remaining}
        if not topics:
            self._on_done({}, None)
            return
        if self._retry.failures == 0 and all(self._has_leader(tp) for tp in self._remaining):
            self._send_requests()
        else:
            self._cluster.refresh(topics, self._on_refreshed)

    def _has_leader(self, tp: TopicPartition) -> bool:
        return self._cluster.metadata.leader(tp) in self._cluster.metadata.nodes

    def _on_refreshed(self, _none: None, error: ClientError | None) -> None:
        if error is not None:
            self._retry_error = error
            self._end_round()
            return
        self._send_requests()

    def _send_requests(self) -> None:
        metadata = self._cluster.metadata
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp in self._remaining:
            if self._has_leader(tp):
                by_leader.setdefault(metadata.leader(tp), []).append(tp)
            elif metadata.partition(tp) is None and metadata.topics.get(tp.topic) is not None:
                count = len(metadata.topics[tp.topic].partitions)
                self._error = UnknownPartitionError(tp.topic, tp.partition, count)
            else:
                code = metadata.errors.get(tp.topic) or ErrorCode.LEADER_NOT_AVAILABLE
                self._retry_error = broker_error(code, f"offsets of {tp}")
        self._outstanding = len(by_leader)
        if not by_leader:
            self._end_round()
        for leader, partitions in by_leader.items():
            self._send(leader, partitions)

    def _send(self, leader: int, partitions: list[TopicPartition]) -> None:
        def build(_version: int) -> Message:
            return self._request(partitions)

        def on_done(response: Message | None, error: ClientError | None) -> None:
            if response is None:
                self._record_error(error)
            else:
                assert isinstance(response, ListOffsetsResponse)
                self._on_response(response, set(partitions))
            self._outstanding -= 1
            if self._outstanding == 0:
                self._end_round()

        self._cluster.call(leader, Call(ApiKey.LIST_OFFSETS, build, on_done))

    def _request(self, partitions: list[TopicPartition]) -> ListOffsetsRequest:
        topics = by_topic((tp, self._entry(tp)) for tp in partitions)
        return ListOffsetsRequest(
            replica_id=-1,
            isolation_level=self._isolation_level,
            topics=[
                ListOffsetsTopic(name=name, partitions=entries) for name, entries in topics.items()
            ],
            timeout_ms=self._cluster.config.request_timeout_ms,
        )

    def _entry(self, tp: TopicPartition) -> ListOffsetsPartition:
        info = self._cluster.metadata.partition(tp)
        return ListOffsetsPartition(
            partition_index=tp.partition,
            current_leader_epoch=info.leader_epoch if info is not None else -1,
            timestamp=self._remaining[tp],
        )

    def _on_response(self, response: ListOffsetsResponse, unanswered: set[TopicPartition]) -> None:
        for topic in response.topics:
            for partition in topic.partitions:
                tp = TopicPartition(topic.name, partition.partition_index)
                if tp not in unanswered:
                    continue
                unanswered.remove(tp)
                if partition.error_code:
                    self._record_error(broker_error(partition.error_code, f"offsets of {tp}"))
                else:
                    del self._remaining[tp]
                    found = ListedOffset(
                        partition.offset, partition.timestamp, partition.leader_epoch
                    )
                    self._found[tp] = found
                    if self._on_found is not None:
                        self._on_found(tp, found)
        for tp in unanswered:
            subject = f"offsets of {tp}"
            self._record_error(broker_error(ErrorCode.UNKNOWN_SERVER_ERROR, subject, "no response"))

    def _record_error(self, error: ClientError | None) -> None:
        assert error is not None
        if error.retriable:
            self._retry_error = error
        else:
            self._error = error

    def _end_round(self) -> None:
        if self._error is not None:
            self._on_done(None, self._error)
            return
        if not self._remaining:
            self._on_done(self._found, None)
            return
        error = self._retry_error
        assert error is not None, "partitions without a response and without an error"
        if isinstance(error, UnknownTopicError) and self._retry.failures >= _UNKNOWN_ATTEMPTS - 1:
            self._on_done(None, error)
            return
        if not self._retry.retry(self.start):
            timeout = ClientTimeoutError(
                f"offsets of {len(self._remaining)} partition(s) were not found in time; "
                f"last: {error}"
            )
            timeout.error_code = error.error_code
            self._on_done(None, timeout)


class EpochEnd(NamedTuple):
    """The response for one partition; both fields are -1 if the leader has no epoch that old."""

    leader_epoch: int
    end_offset: int


def request_epoch_ends(
    cluster: Cluster,
    epochs: Mapping[TopicPartition, int],
    on_end: Callable[[TopicPartition, EpochEnd | ClientError | None], None],
) -> None:
    """Request the end offsets of these epochs from the leaders, once.

    Args:
        cluster: The cluster. Partitions without a known leader get a retriable error.
        epochs: For each partition the leader epoch of the last record read.
        on_end: Called once for each partition, with the result or an error. None means that
            validation is not possible: the leader does not support the request (before Apache Kafka
            2.3), or the response does not contain the partition.
    """
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for tp, epoch in epochs.items():
        leader = cluster.metadata.leader(tp)
        if leader == NO_LEADER:
            on_end(tp, broker_error(ErrorCode.LEADER_NOT_AVAILABLE, f"end of an epoch of {tp}"))
        else:
            by_leader.setdefault(leader, {})[tp] = epoch
    for leader, requested in by_leader.items():
        _send(cluster, leader, requested, on_end)


def _send(
    cluster: Cluster,
    leader: int,
    requested: dict[TopicPartition, int],
    on_end: Callable[[TopicPartition, EpochEnd | ClientError | None], None],
) -> None:
    def build(_version: int) -> Message:
        return _build_request(cluster, requested)

    def on_done(response: Message | None, error: ClientError | None) -> None:
        if response is None:
            assert error is not None
            too_old = isinstance(error, UnsupportedVersionError)
            for tp in requested:
                on_end(tp, None if too_old else error)
            return
        assert isinstance(response, OffsetForLeaderEpochResponse)
        unanswered = dict(requested)
        for topic in response.topics:
            for partition in topic.partitions:
                tp = TopicPartition(topic.topic, partition.partition)
                if unanswered.pop(tp, None) is None:
                    continue
                if partition.error_code:
                    on_end(tp, broker_error(partition.error_code, f"end of an epoch of {tp}"))
                else:
                    on_end(tp, EpochEnd(partition.leader_epoch, partition.end_offset))
        for tp in unanswered:
            on_end(tp, None)

    cluster.call(leader, Call(ApiKey.OFFSET_FOR_LEADER_EPOCH, build, on_done))


def _build_request(
    cluster: Cluster, requested: dict[TopicPartition, int]
) -> OffsetForLeaderEpochRequest:
    def entry(tp: TopicPartition, epoch: int) -> OffsetForLeaderPartition:
        info = cluster.metadata.partition(tp)
        return OffsetForLeaderPartition(
            partition=tp.partition,
            current_leader_epoch=-1 if info is None else info.leader_epoch,
            leader_epoch=epoch,
        )

    topics = by_topic((tp, entry(tp, epoch)) for tp, epoch in requested.items())
    return OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[OffsetForLeaderTopic(topic=name, partitions=p) for name, p in topics.items()],
    )
