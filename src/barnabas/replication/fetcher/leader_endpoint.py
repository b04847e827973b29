"""A fetcher's identity, and its requests to a leader (Kafka's RemoteLeaderEndPoint).

The requests fetch records within a session, end offsets of epochs, and offsets at timestamps.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from barnabas.network.network_error import NetworkError, NetworkErrorKind
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.fetch_session_handler import FetchSessionHandler, FetchSessionRequest
from barnabas.protocol.java_collections import string_hash
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from barnabas.protocol.messages.log_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.replication.partition.offset_lookup import EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD
from barnabas.replication.partition.results import (
    UNKNOWN_EPOCH,
    UNKNOWN_OFFSET,
    EpochEndOffset,
)
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.protocol.messages.fetch import FetchResponse
    from barnabas.protocol.schema import Message
    from barnabas.replication.config import FetcherSettings
    from barnabas.replication.fetcher.leader_channels import LeaderChannel

    T = TypeVar("T")

    # Callbacks. Each gets the response, or None and an error.
    OnFetched: TypeAlias = Callable[[FetchResponse | None, NetworkError | None], None]
    OnEpochEnds: TypeAlias = Callable[
        [dict[TopicPartition, EpochEndOffset] | None, NetworkError | None], None
    ]
    OnOffsets: TypeAlias = Callable[
        [dict[TopicPartition, "ListedOffset"] | None, NetworkError | None], None
    ]

_log = logging.getLogger(__name__)

_HASH_MASK = 0xFFFF_FFFF
_HASH_SIGN = 0x8000_0000


class FetcherKey(NamedTuple):
    """The leader and the number of a fetcher."""

    leader_id: int
    fetcher_id: int

    @property
    def name(self) -> str:
        """The name of the corresponding thread in Kafka, for metrics."""
        return f"ReplicaFetcherThread-{self.fetcher_id}-{self.leader_id}"


def fetcher_id(topic_partition: TopicPartition, fetchers: int) -> int:
    """Return the fetcher id of a partition, by Kafka's formula with Java's string hash."""
    hashed = (31 * string_hash(topic_partition.topic) + topic_partition.partition) & _HASH_MASK
    if hashed & _HASH_SIGN:
        # The absolute value. As in Kafka, it is 0 for the smallest integer.
        hashed = (-hashed) & _HASH_MASK
        hashed = 0 if hashed == _HASH_SIGN else hashed
    return hashed % fetchers


class RequestedPartition(NamedTuple):
    """The fetch parameters of one partition. The leader caches the last ones it received."""

    topic_id: bytes
    fetch_offset: int
    log_start_offset: int
    current_leader_epoch: int
    last_fetched_epoch: int


FollowerSession: TypeAlias = FetchSessionHandler[TopicPartition, RequestedPartition]
FollowerRequest: TypeAlias = FetchSessionRequest[TopicPartition, RequestedPartition]


# The last version of Fetch with topic names.
_LAST_WITH_NAMES = 12
_REPLICA_STATE_SINCE = 15
# Versions of the less frequent requests. All supported leaders serve these versions.
# ListOffsets knows a timestamp for the local log since version 8 (KIP-405), and one for the end of
# the remote tier since version 11 (KIP-1023). Only leaders with a tier are asked for these.
_LIST_OFFSETS_VERSION = 7
_VERSIONS_OF_TIMESTAMPS = {EARLIEST_LOCAL: 8, EARLIEST_PENDING_UPLOAD: 11}
_OFFSET_FOR_LEADER_EPOCH_VERSION = 4


class ListedOffset(NamedTuple):
    """The ListOffsets result of a partition."""

    error: ErrorCode
    offset: int = UNKNOWN_OFFSET
    # Epoch of the record at the offset.
    leader_epoch: int = UNKNOWN_EPOCH


class EpochQuery(NamedTuple):
    """A query for the end offset of `leader_epoch`."""

    current_leader_epoch: int
    leader_epoch: int


class LeaderEndpoint:
    """The requests to one leader, over a dedicated connection."""

    __slots__ = ("_channel", "_settings", "broker_id")

    def __init__(self, broker_id: int, channel: LeaderChannel, settings: FetcherSettings) -> None:
        self.broker_id = broker_id
        self._channel = channel
        self._settings = settings

    def close(self) -> None:
        """Close the connection. The next request opens a new one."""
        self._channel.close()

    def fetch(self, requested: FollowerRequest, max_wait_ms: int, on_response: OnFetched) -> None:
        """Send a Fetch request with the partitions and session fields of `requested`.

        Args:
            requested: the partitions and session fields.
            max_wait_ms: longest time that the leader waits for records.
            on_response: gets the response, or None and an error.
        """
        config, node_id = self._settings.config, self._settings.node_id
        version = self._settings.fetch_version()
        if not requested.uses_topic_ids:
            version = min(version, _LAST_WITH_NAMES)
        has_state = version >= _REPLICA_STATE_SINCE
        request = FetchRequest(
            replica_id=-1 if has_state else node_id,
            max_wait_ms=max_wait_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=requested.session_id,
            session_epoch=requested.session_epoch,
            topics=_fetch_topics(
                requested.to_send, config.replica_fetch_max_bytes, self._settings.finds_divergence
            ),
        )
        if requested.to_forget:
            request.forgotten_topics_data = [
                ForgottenTopic(topic=topic, topic_id=topic_id, partitions=partitions)
                for topic, topic_id, partitions in _forgotten(requested.to_forget)
            ]
        if has_state:
            request.replica_state = ReplicaState(
                replica_id=node_id, replica_epoch=self._settings.broker_epoch()
            )
        self._channel.send(request, version, on_response, config.replica_socket_timeout_ms)

    def epoch_ends(
        self, requested: Mapping[TopicPartition, EpochQuery], on_response: OnEpochEnds
    ) -> None:
        """Query the end offsets of epochs (OffsetForLeaderEpoch, KIP-101)."""
        request = OffsetForLeaderEpochRequest(
            replica_id=self._settings.node_id,
            topics=[
                OffsetForLeaderTopic(
                    topic=topic,
                    partitions=[
                        OffsetForLeaderPartition(
                            partition=key.partition,
                            current_leader_epoch=requested[key].current_leader_epoch,
                            leader_epoch=requested[key].leader_epoch,
                        )
                        for key in keys
                    ],
                )
                for topic, keys in _by_topic(requested)
            ],
        )

        def read(response: Any) -> dict[TopicPartition, EpochEndOffset]:
            return {
                TopicPartition(topic.topic, each.partition): EpochEndOffset(
                    each.leader_epoch, each.end_offset, ErrorCode.of(each.error_code)
                )
                for topic in response.topics
                for each in topic.partitions
            }

        self._send(request, _OFFSET_FOR_LEADER_EPOCH_VERSION, read, on_response)

    def offsets(
        self, requested: Mapping[TopicPartition, int], timestamp: int, on_response: OnOffsets
    ) -> None:
        """Query the offsets at one of Kafka's special timestamps.

        Args:
            requested: the current leader epoch of each partition.
            timestamp: LATEST, EARLIEST, EARLIEST_LOCAL or EARLIEST_PENDING_UPLOAD.
            on_response: gets the offsets, or None and an error.
        """
        request = ListOffsetsRequest(
            replica_id=self._settings.node_id,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=key.partition,
                            current_leader_epoch=requested[key],
                            timestamp=timestamp,
                        )
                        for key in keys
                    ],
                )
                for topic, keys in _by_topic(requested)
            ],
        )

        def read(response: Any) -> dict[TopicPartition, ListedOffset]:
            return {
                TopicPartition(topic.name, each.partition_index): ListedOffset(
                    ErrorCode.of(each.error_code), each.offset, each.leader_epoch
                )
                for topic in response.topics
                for each in topic.partitions
            }

        version = _VERSIONS_OF_TIMESTAMPS.get(timestamp, _LIST_OFFSETS_VERSION)
        self._send(request, version, read, on_response)

    def _send(
        self,
        request: Message,
        version: int,
        read: Callable[[Any], T],
        on_response: Callable[[T | None, NetworkError | None], None],
    ) -> None:
        """Send a request other than Fetch. `read` converts the response."""

        def on_received(response: Any, error: NetworkError | None) -> None:
            result = None
            if error is None:
                try:
                    result = read(response)
                except Exception as unreadable:  # noqa: BLE001 - the request fails, and is repeated
                    _log.exception("Unexpected error in a response: broker=%d", self.broker_id)
                    error = NetworkError(NetworkErrorKind.MALFORMED, repr(unreadable))
            on_response(result, error)

        timeout_ms = self._settings.config.replica_socket_timeout_ms
        self._channel.send(request, version, on_received, timeout_ms)


def _fetch_topics(
    requested: Mapping[TopicPartition, RequestedPartition], max_bytes: int, with_last_epoch: bool
) -> list[FetchTopic]:
    """Return the topics of a request, in the order of the partitions.

    The order ensures fairness. Adjacent partitions of one topic share an entry.
    """
    topics: list[FetchTopic] = []
    last: tuple[str, bytes] | None = None
    for key, each in requested.items():
        if last != (key.topic, each.topic_id):
            last = (key.topic, each.topic_id)
            topics.append(FetchTopic(topic=key.topic, topic_id=each.topic_id, partitions=[]))
        topics[-1].partitions.append(
            FetchPartition(
                partition=key.partition,
                current_leader_epoch=each.current_leader_epoch,
                fetch_offset=each.fetch_offset,
                last_fetched_epoch=each.last_fetched_epoch if with_last_epoch else -1,
                log_start_offset=each.log_start_offset,
                partition_max_bytes=max_bytes,
            )
        )
    return topics


def _forgotten(
    partitions: Mapping[TopicPartition, bytes],
) -> Iterable[tuple[str, bytes, list[int]]]:
    topics: dict[tuple[str, bytes], list[int]] = {}
    for key, topic_id in partitions.items():
        topics.setdefault((key.topic, topic_id), []).append(key.partition)
    return ((topic, topic_id, indexes) for (topic, topic_id), indexes in topics.items())


def _by_topic(
    partitions: Iterable[TopicPartition],
) -> Iterable[tuple[str, list[TopicPartition]]]:
    topics: dict[str, list[TopicPartition]] = {}
    for key in partitions:
        topics.setdefault(key.topic, []).append(key)
    return topics.items()
