"""The share session with one broker, and its requests (KIP-932, KIP-1206, KIP-1222).

The session has its epoch, its partitions, and pending acknowledgements. `ShareRequests` builds
ShareFetch and ShareAcknowledge requests of one member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from barnabas.client.share.acknowledgements import Acknowledgements
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.messages import share_acknowledge
from barnabas.protocol.messages.share_consumers import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from barnabas.client.config import ClientConfig
    from barnabas.client.errors import ClientError
    from barnabas.client.retries import RetryTimer
    from barnabas.client.share.acquired_records import ShareSource

__all__ = ["FINAL_EPOCH", "AckGroup", "PartitionId", "ShareRequests", "ShareSession", "joined"]

T = TypeVar("T")
# Topic id and partition number.
PartitionId = tuple[bytes, int]
# First version with acquire modes and renewals.
_MODES_FROM = 2
_BATCH_OPTIMIZED = 0
_RECORD_LIMIT = 1
# The epoch that opens a session, and the epoch that closes it.
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_MAX = 2**31 - 1


class ShareRequests(NamedTuple):
    """Builds the requests of one member.

    Attributes:
        config: Limits of fetches, and the group.
        member_id: The member of the group.
    """

    config: ClientConfig
    member_id: str

    @property
    def is_record_limit(self) -> bool:
        """Whether max.poll.records is a strict limit of the acquired records."""
        return self.config.share_acquire_mode == "record_limit"

    def fetch(
        self,
        version: int,
        epoch: int,
        partitions: Mapping[PartitionId, Acknowledgements | None],
        forgotten: Iterable[PartitionId],
    ) -> ShareFetchRequest:
        """Return a ShareFetch.

        Args:
            version: The negotiated version.
            epoch: Epoch of the share session.
            partitions: The partitions to add to the session, and those with acknowledgements.
            forgotten: The partitions to remove from the session.

        Raises:
            ProtocolError: The version does not support the acquire mode.
        """
        config = self.config
        request = ShareFetchRequest(
            group_id=config.group_id,
            member_id=self.member_id,
            share_session_epoch=epoch,
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            max_records=config.max_poll_records,
            batch_size=config.max_poll_records,
            topics=[
                FetchTopic(topic_id=topic_id, partitions=found)
                for topic_id, found in _by_topic(
                    (each, _fetch_partition(each, acks)) for each, acks in partitions.items()
                ).items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id, partitions=numbers)
                for topic_id, numbers in _by_topic((each, each[1]) for each in forgotten).items()
            ],
        )
        if version >= _MODES_FROM:
            request.share_acquire_mode = _RECORD_LIMIT if self.is_record_limit else _BATCH_OPTIMIZED
        elif self.is_record_limit:
            raise ProtocolError("share.acquire.mode=record_limit needs Apache Kafka 4.2")
        return request

    def acknowledge(
        self, epoch: int, partitions: Mapping[PartitionId, Acknowledgements]
    ) -> share_acknowledge.ShareAcknowledgeRequest:
        """Return a ShareAcknowledge; epoch -1 closes the session and releases its records."""
        request = share_acknowledge.ShareAcknowledgeRequest(
            group_id=self.config.group_id,
            member_id=self.member_id,
            share_session_epoch=epoch,
            topics=[
                share_acknowledge.AcknowledgeTopic(topic_id=topic_id, partitions=found)
                for topic_id, found in _by_topic(
                    (each, _acknowledge_partition(each, acks)) for each, acks in partitions.items()
                ).items()
            ],
        )
        # Encoding fails at version 1, which has no renewals.
        request.is_renew_ack = any(acks.has_renewals for acks in partitions.values())
        return request


def _fetch_partition(partition: PartitionId, acks: Acknowledgements | None) -> FetchPartition:
    batches = [] if acks is None else acks.batches()
    return FetchPartition(
        partition_index=partition[1],
        acknowledgement_batches=[
            AcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=list(types)
            )
            for first, last, types in batches
        ],
    )


def _acknowledge_partition(
    partition: PartitionId, acks: Acknowledgements
) -> share_acknowledge.AcknowledgePartition:
    return share_acknowledge.AcknowledgePartition(
        partition_index=partition[1],
        acknowledgement_batches=[
            share_acknowledge.AcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=list(types)
            )
            for first, last, types in acks.batches()
        ],
    )


def _by_topic(pairs: Iterable[tuple[PartitionId, T]]) -> dict[bytes, list[T]]:
    topics: dict[bytes, list[T]] = {}
    for (topic_id, _), value in pairs:
        topics.setdefault(topic_id, []).append(value)
    return topics


class AckGroup(NamedTuple):
    """Acknowledgements of one partition that were requested together."""

    source: ShareSource
    acks: Acknowledgements
    # Called once, with the error or None.
    on_done: Callable[[ClientError | None], None]

    @property
    def partition(self) -> PartitionId:
        """Topic id and number of the partition."""
        return self.source.topic_id, self.source.tp.partition


class ShareSession:
    """The session of this member with one broker; at most one request is in flight.

    Args:
        node_id: The broker.
        retry: Delays the next request after an error.
    """

    __slots__ = (
        "_epoch",
        "_partitions",
        "error",
        "in_flight",
        "is_ending",
        "is_urgent",
        "node_id",
        "pending",
        "retry",
    )

    def __init__(self, node_id: int, retry: RetryTimer) -> None:
        self.node_id = node_id
        self.retry = retry
        # Epoch of the next request. Requests move it; an error resets it to INITIAL_EPOCH.
        self._epoch = INITIAL_EPOCH
        # The partitions that the broker has in this session, as of the last request.
        self._partitions: set[PartitionId] = set()
        # Whether a request is in flight.
        self.in_flight = False
        # Acknowledgements for the next request.
        self.pending: list[AckGroup] = []
        # Whether `pending` must not wait for a fetch.
        self.is_urgent = False
        # Whether the next request closes the session.
        self.is_ending = False
        # Error of the last request without a response; None after a response.
        self.error: ClientError | None = None

    @property
    def is_open(self) -> bool:
        """Whether the broker has this session; only then it accepts acknowledgements."""
        return self._epoch != INITIAL_EPOCH

    @property
    def epoch(self) -> int:
        """Epoch of the next request."""
        return FINAL_EPOCH if self.is_ending else self._epoch

    def take_pending(self) -> list[AckGroup]:
        """Return the pending acknowledgements for a request that is being sent."""
        taken, self.pending = self.pending, []
        self.is_urgent = False
        return taken

    def plan_fetch(
        self, wanted: Collection[PartitionId], groups: Iterable[AckGroup]
    ) -> tuple[dict[PartitionId, Acknowledgements | None], list[PartitionId]]:
        """Return the changes of the next fetch, and the partitions that it forgets."""
        listed: dict[PartitionId, Acknowledgements | None] = {
            each: None for each in wanted if each not in self._partitions
        }
        listed.update(joined(groups))
        forgotten = [each for each in self._partitions if each not in set(wanted)]
        # A partition with acknowledgements is added to the session by the broker.
        self._partitions = {*wanted, *listed}
        return listed, [each for each in forgotten if each not in listed]

    def on_sent(self) -> None:
        """Move the epoch for the next request."""
        self.in_flight = True
        if self.is_ending:
            return
        self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1

    def reset(self) -> None:
        """Start a new session with the next fetch, because this one is lost or closed."""
        self._epoch = INITIAL_EPOCH
        self._partitions = set()
        self.is_ending = False


def joined(groups: Iterable[AckGroup]) -> dict[PartitionId, Acknowledgements]:
    """Return the acknowledgements of all groups by partition."""
    found: dict[PartitionId, Acknowledgements] = {}
    for group in groups:
        found.setdefault(group.partition, Acknowledgements()).merge(group.acks)
    return found
