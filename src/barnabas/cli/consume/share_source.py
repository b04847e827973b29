"""Records acquired as a member of a share group (KIP-932).

Printed records are accepted. With `--on-error skip`, records that cannot be decoded are rejected.
All others are released when the command ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.output import warning
from barnabas.cli.consume.source import Chunk
from barnabas.client.errors import CorruptRecordsError
from barnabas.client.share.acknowledgements import AcknowledgeType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.cli.consume.skipping import ErrorPolicy
    from barnabas.client.errors import ClientError, RecordDeserializationError
    from barnabas.client.share.acquired_records import ShareRecord
    from barnabas.client.share.share_consumer import ShareConsumer
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["ShareSource"]

_MS_PER_S = 1000.0
# Time limit of a commit (s).
_COMMIT_S = 5.0


class ShareSource:
    """A source without an end; records that existed before may still be delivered.

    Args:
        consumer: A subscribed consumer with explicit acknowledgements.
        errors: The policy for records that cannot be read; its skipped records are rejected.
    """

    is_finished = False

    def __init__(self, consumer: ShareConsumer, errors: ErrorPolicy) -> None:
        self._consumer = consumer
        self._errors = errors
        errors.on_skip = self._reject
        # The records of the last poll that were not acknowledged, by partition and offset.
        self._acquired: dict[tuple[TopicPartition, int], ShareRecord] = {}

    @property
    def trouble(self) -> ClientError | None:
        """The reason why no records arrive."""
        return self._consumer.trouble

    def poll(self, timeout_ms: float) -> Sequence[Chunk]:
        """Accept the records of the previous poll, which were printed; return acquired records.

        Raises:
            CorruptRecordsError: A batch is corrupt, and errors are not skipped.
        """
        self._accept_all()
        try:
            found = self._consumer.poll(timeout_ms / _MS_PER_S)
        except CorruptRecordsError as error:
            # The consumer itself rejects the batch.
            self._errors.handle(error)
            return ()
        chunks = []
        for tp, records in found.items():
            self._acquired.update(((tp, record.offset), record) for record in records)
            chunks.append(Chunk(tp, records, records[-1].offset + 1))
        return chunks

    def _accept_all(self) -> None:
        for record in self._acquired.values():
            self._consumer.acknowledge(record)
        self._acquired = {}

    def _reject(self, error: CorruptRecordsError | RecordDeserializationError) -> None:
        record = self._acquired.pop((error.partition, error.offset), None)
        if record is not None:
            self._consumer.acknowledge(record, AcknowledgeType.REJECT)

    def commit(self, printed: Mapping[TopicPartition, int]) -> None:
        """Accept the printed records: those before the given offset of their partition."""
        for (tp, offset), record in list(self._acquired.items()):
            if offset < printed.get(tp, 0):
                del self._acquired[tp, offset]
                self._consumer.acknowledge(record)
        for tp, error in self._consumer.commit_sync(_COMMIT_S).items():
            if error is not None:
                warning(f"some records of {tp} may be delivered again: {error}")
