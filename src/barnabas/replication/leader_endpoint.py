"""What a fetcher asks a leader: records, ends of epochs, offsets (Kafka's RemoteLeaderEndPoint)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from barnabas.network.network_error import NetworkError, NetworkErrorKind
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.replication.results import UNKNOWN_OFFSET, EpochEndOffset
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.protocol.messages.fetch import FetchResponse
    from barnabas.protocol.schema import Message
    from barnabas.replication.fetcher_settings import FetcherSettings
    from barnabas.replication.follower_session import AskedPartition, FollowerRequest
    from barnabas.replication.leader_channels import LeaderChannel

    T = TypeVar("T")

    # Each gets the answer, or None and why there is none.
    OnFetched: TypeAlias = Callable[[FetchResponse | None, NetworkError | None], None]
    OnEpochEnds: TypeAlias = Callable[
        [dict[TopicPartition, EpochEndOffset] | None, NetworkError | None], None
    ]
    OnOffsets: TypeAlias = Callable[
        [dict[TopicPartition, "ListedOffset"] | None, NetworkError | None], None
    ]

_log = logging.getLogger(__name__)

# The last version of Fetch that names topics.
_LAST_WITH_NAMES = 12
# The first with which the leader itself finds where logs diverge (KIP-595).
_DIVERGING_SINCE = 12
_REPLICA_STATE_SINCE = 15
# Versions of the rarer questions, known to all brokers that can be in a cluster with us.
_LIST_OFFSETS_VERSION = 7
_OFFSET_FOR_LEADER_EPOCH_VERSION = 4


class ListedOffset(NamedTuple):
    """What ListOffsets answers for a partition."""

    error: ErrorCode
    offset: int = UNKNOWN_OFFSET


class EpochQuestion(NamedTuple):
    """Where `leader_epoch` ends."""

    current_leader_epoch: int
    leader_epoch: int


class LeaderEndpoint:
    """One leader, over a channel of one's own."""

    __slots__ = ("_channel", "_settings", "broker_id")

    def __init__(self, broker_id: int, channel: LeaderChannel, settings: FetcherSettings) -> None:
        self.broker_id = broker_id
        self._channel = channel
        self._settings = settings

    @property
    def finds_divergence(self) -> bool:
        """Whether a fetch finds out where logs diverge; else that is asked for before."""
        return self._settings.fetch_version() >= _DIVERGING_SINCE

    def close(self) -> None:
        """Cut the connection; the next question makes a new one."""
        self._channel.close()

    def fetch(self, asked: FollowerRequest, on_answer: OnFetched) -> None:
        """Fetch, within the session that `asked` goes on with."""
        config, node_id = self._settings.config, self._settings.node_id
        version = self._settings.fetch_version()
        if not asked.uses_topic_ids:
            version = min(version, _LAST_WITH_NAMES)
        has_state = version >= _REPLICA_STATE_SINCE
        request = FetchRequest(
            replica_id=-1 if has_state else node_id,
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=asked.session_id,
            session_epoch=asked.session_epoch,
            topics=_fetch_topics(
                asked.to_send, config.replica_fetch_max_bytes, version >= _DIVERGING_SINCE
            ),
            forgotten_topics_data=[
                ForgottenTopic(topic=topic, topic_id=topic_id, partitions=partitions)
                for topic, topic_id, partitions in _forgotten(asked.to_forget)
            ],
        )
        if has_state:
            request.replica_state = ReplicaState(
                replica_id=node_id, replica_epoch=self._settings.broker_epoch()
            )
        self._channel.send(request, version, on_answer, config.replica_socket_timeout_ms)

    def epoch_ends(
        self, asked: Mapping[TopicPartition, EpochQuestion], on_answer: OnEpochEnds
    ) -> None:
        """Ask where epochs end (OffsetForLeaderEpoch, KIP-101)."""
        request = OffsetForLeaderEpochRequest(
            replica_id=self._settings.node_id,
            topics=[
                OffsetForLeaderTopic(
                    topic=topic,
                    partitions=[
                        OffsetForLeaderPartition(
                            partition=key.partition,
                            current_leader_epoch=asked[key].current_leader_epoch,
                            leader_epoch=asked[key].leader_epoch,
                        )
                        for key in keys
                    ],
                )
                for topic, keys in _by_topic(asked)
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

        self._ask(request, _OFFSET_FOR_LEADER_EPOCH_VERSION, read, on_answer)

    def offsets(
        self, asked: Mapping[TopicPartition, int], timestamp: int, on_answer: OnOffsets
    ) -> None:
        """Ask for the offsets at one of Kafka's special timestamps.

        Args:
            asked: the current leader epoch of each partition.
        """
        request = ListOffsetsRequest(
            replica_id=self._settings.node_id,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=key.partition,
                            current_leader_epoch=asked[key],
                            timestamp=timestamp,
                        )
                        for key in keys
                    ],
                )
                for topic, keys in _by_topic(asked)
            ],
        )

        def read(response: Any) -> dict[TopicPartition, ListedOffset]:
            return {
                TopicPartition(topic.name, each.partition_index): ListedOffset(
                    ErrorCode.of(each.error_code), each.offset
                )
                for topic in response.topics
                for each in topic.partitions
            }

        self._ask(request, _LIST_OFFSETS_VERSION, read, on_answer)

    def _ask(
        self,
        request: Message,
        version: int,
        read: Callable[[Any], T],
        on_answer: Callable[[T | None, NetworkError | None], None],
    ) -> None:
        """Send one of the rarer questions; `read` makes the answer from the response."""

        def answered(response: Any, error: NetworkError | None) -> None:
            answer = None
            if error is None:
                try:
                    answer = read(response)
                except Exception as unreadable:  # noqa: BLE001 - the request fails, and is repeated
                    _log.exception("Unexpected error in the response of broker %d", self.broker_id)
                    error = NetworkError(NetworkErrorKind.MALFORMED, repr(unreadable))
            on_answer(answer, error)

        timeout_ms = self._settings.config.replica_socket_timeout_ms
        self._channel.send(request, version, answered, timeout_ms)


def _fetch_topics(
    asked: Mapping[TopicPartition, AskedPartition], max_bytes: int, says_last_epoch: bool
) -> list[FetchTopic]:
    """In the order of the partitions, which is that of fairness; neighbours share a topic."""
    topics: list[FetchTopic] = []
    last: tuple[str, bytes] | None = None
    for key, each in asked.items():
        if last != (key.topic, each.topic_id):
            last = (key.topic, each.topic_id)
            topics.append(FetchTopic(topic=key.topic, topic_id=each.topic_id, partitions=[]))
        topics[-1].partitions.append(
            FetchPartition(
                partition=key.partition,
                current_leader_epoch=each.current_leader_epoch,
                fetch_offset=each.fetch_offset,
                last_fetched_epoch=each.last_fetched_epoch if says_last_epoch else -1,
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
