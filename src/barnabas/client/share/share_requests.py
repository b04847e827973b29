"""ShareFetch and ShareAcknowledge requests of one member (KIP-932, KIP-1206, KIP-1222)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from barnabas.protocol.messages import share_acknowledge, share_fetch
from barnabas.protocol.protocol_error import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.client.config import ClientConfig
    from barnabas.client.share.acknowledgements import Acknowledgements

__all__ = ["PartitionId", "ShareRequests"]

T = TypeVar("T")
# Topic id and partition number.
PartitionId = tuple[bytes, int]

# First version with acquire modes and renewals.
_MODES_FROM = 2
_BATCH_OPTIMIZED = 0
_RECORD_LIMIT = 1


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
    ) -> share_fetch.ShareFetchRequest:
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
        request = share_fetch.ShareFetchRequest(
            group_id=config.group_id,
            member_id=self.member_id,
            share_session_epoch=epoch,
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            max_records=config.max_poll_records,
            batch_size=config.max_poll_records,
            topics=[
                share_fetch.FetchTopic(topic_id=topic_id, partitions=found)
                for topic_id, found in _by_topic(
                    (each, _fetch_partition(each, acks)) for each, acks in partitions.items()
                ).items()
            ],
            forgotten_topics_data=[
                share_fetch.ForgottenTopic(topic_id=topic_id, partitions=numbers)
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


def _fetch_partition(
    partition: PartitionId, acks: Acknowledgements | None
) -> share_fetch.FetchPartition:
    batches = [] if acks is None else acks.batches()
    return share_fetch.FetchPartition(
        partition_index=partition[1],
        acknowledgement_batches=[
            share_fetch.AcknowledgementBatch(
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
