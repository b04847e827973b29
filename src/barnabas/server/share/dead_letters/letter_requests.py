"""The requests with which a broker creates and writes dead-letter topics (KIP-1191)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.record.builder import BatchBuilder
from barnabas.server.share.dead_letters.dead_letter import OFFSET_HEADER, OFFSET_INDEX
from barnabas.server.share.dead_letters.dead_letter_settings import ENABLED
from barnabas.server.share.dead_letters.source_records import SourceRecords
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from barnabas.protocol.messages.produce import ProduceResponse
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.share.dead_letters.dead_letter import PendingLetter
    from barnabas.server.share.dead_letters.dead_letter_settings import DeadLetterSettings
    from barnabas.server.share.dead_letters.source_records import SourceLog
    from barnabas.waiting.off_loop import OffLoop

# Number of partitions or replicas that the controller replaces by its default.
_DEFAULT = -1
_ACKS_ALL = -1
# Size at which a batch gets no more records, even if the topic accepts larger batches.
_BATCH_BYTES_MAX = 1 << 20
# Maximum size of all batches of a request, except that the first record always fits.
_REQUEST_BYTES_MAX = 4 << 20
# Records per step of the work.
_RECORDS_PER_STEP = 64


def create_request(topic: str, timeout_ms: int) -> CreateTopicsRequest:
    """Return the request that creates a dead-letter topic.

    The records have the time of the write as their timestamp, whatever the broker's default is.
    """
    configs = {ENABLED: "true", "message.timestamp.type": "CreateTime"}
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic,
                num_partitions=_DEFAULT,
                replication_factor=_DEFAULT,
                assignments=[],
                configs=[
                    CreatableTopicConfig(name=name, value=value) for name, value in configs.items()
                ],
            )
        ],
        timeout_ms=timeout_ms,
        validate_only=False,
    )


def produce_request(
    cluster: ClusterView, batches: Mapping[TopicPartition, bytearray], timeout_ms: int
) -> ProduceRequest:
    """Return the request that writes batches. Topics that were deleted meanwhile are left out."""
    topics: dict[bytes, TopicProduceData] = {}
    for key, batch in batches.items():
        topic_id = cluster.topic_id(key.topic)
        if topic_id is None:
            continue
        data = topics.setdefault(
            topic_id, TopicProduceData(name=key.topic, topic_id=topic_id, partition_data=[])
        )
        data.partition_data.append(PartitionProduceData(index=key.partition, records=batch))
    return ProduceRequest(
        transactional_id=None,
        acks=_ACKS_ALL,
        timeout_ms=timeout_ms,
        topic_data=list(topics.values()),
    )


def errors_of(cluster: ClusterView, response: ProduceResponse) -> dict[TopicPartition, ErrorCode]:
    """Return the error of each partition in a response."""
    results: dict[TopicPartition, ErrorCode] = {}
    for topic in response.responses:
        name = cluster.topic_name(topic.topic_id)
        if name is not None:
            for each in topic.partition_responses:
                results[TopicPartition(name, each.index)] = ErrorCode.of(each.error_code)
    return results


class DeadLetterBatches:
    """Batches by partition of dead-letter topics, each with records of one or more letters."""

    __slots__ = ("_builders", "_log", "_now_ms", "_settings", "deferred")

    def __init__(
        self, settings: DeadLetterSettings, log: SourceLog, now_ms: Callable[[], int]
    ) -> None:
        """Create without records.

        Args:
            settings: the configs of groups and topics.
            log: reads the records that are copied.
            now_ms: returns the wall-clock time, the timestamp of the records.
        """
        self._settings = settings
        self._log = log
        self._now_ms = now_ms
        self._builders: dict[TopicPartition, BatchBuilder] = {}
        # Letters that do not fit.
        self.deferred: list[PendingLetter] = []

    def build(
        self, letters: Iterable[PendingLetter]
    ) -> Generator[OffLoop | None, Any, DeadLetterBatches]:
        """Add letters in steps, until the request is full."""
        for pending in letters:
            if sum(each.estimated_size for each in self._builders.values()) >= _REQUEST_BYTES_MAX:
                self.deferred.append(pending)
                continue
            yield from self._add(pending)
        return self

    def content(self) -> dict[TopicPartition, bytearray]:
        """Return the batches."""
        return {key: builder.build() for key, builder in self._builders.items()}

    def _add(self, pending: PendingLetter) -> Generator[OffLoop | None, Any, None]:
        letter, offset = pending.letter, pending.next_offset
        limit = min(_BATCH_BYTES_MAX, self._settings.max_bytes(pending.target.topic))
        builder = self._builders.get(pending.target)
        if builder is None:
            builder = self._builders[pending.target] = BatchBuilder(max_bytes=limit)
        elif builder.estimated_size >= limit:
            self.deferred.append(pending)
            return
        source, last = None, letter.last
        if self._settings.copies_records(letter.group_id):
            source = SourceRecords(self._log, letter.where, (offset, last), limit)
            yield from source.read()
            last = source.last
        headers, added = letter.headers(), pending.next_offset - 1
        for offset in range(pending.next_offset, last + 1):
            key, value = (None, None) if source is None else source.content(offset)
            headers[OFFSET_INDEX] = (OFFSET_HEADER, str(offset).encode())
            if builder.append(self._now_ms(), key, value, headers) is None:
                break
            added = offset
            if offset % _RECORDS_PER_STEP == 0:
                yield None
        if added < pending.next_offset:
            self.deferred.append(pending)
        else:
            pending.sent_last = added
