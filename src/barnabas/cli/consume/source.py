"""The sources of records for `consume`: chosen partitions, or those that a group assigns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.client.errors import CorruptRecordsError
from barnabas.client.fetch.record_decoding import read_records, span_records, visible_batches
from barnabas.client.topic_partition import TopicPartition
from barnabas.record.record import CorruptBatchError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.cli.consume.skipping import ErrorPolicy
    from barnabas.client.errors import ClientError
    from barnabas.client.facade import Client
    from barnabas.client.fetch.record_set import RecordSet
    from barnabas.client.fetch.record_stream import RecordStream
    from barnabas.record.compiled import CompiledRecord

__all__ = ["Chunk", "RangeSource", "Source"]


class Chunk(NamedTuple):
    """Records of one partition."""

    partition: TopicPartition
    records: Sequence[CompiledRecord]
    # Offset at which reading continues, after records that are not shown (transaction markers).
    next_offset: int


class Source(Protocol):
    """A source of records."""

    @property
    def is_finished(self) -> bool:
        """Whether no more records will arrive."""
        ...

    @property
    def trouble(self) -> ClientError | None:
        """The reason why no records arrive, if it is known (a broker does not answer)."""
        ...

    def poll(self, timeout_ms: float) -> Sequence[Chunk]:
        """Return the available records, or those that arrive before the timeout."""
        ...

    def commit(self, printed: Mapping[TopicPartition, int]) -> None:
        """Commit the positions for the group, if there is a group."""
        ...


class RangeSource:
    """Chosen partitions, from an offset to an end offset or without end.

    With a group, its offsets are committed, although the source is not a member.
    """

    def __init__(
        self, client: Client, stream: RecordStream, group: str | None, errors: ErrorPolicy
    ) -> None:
        self._client = client
        self._errors = errors
        # Raised by the next poll: the records before the corrupt batch are returned first.
        self._pending_error: CorruptRecordsError | None = None
        self._stream = stream
        self._group = group

    @property
    def is_finished(self) -> bool:
        """Whether all partitions have reached their ends."""
        return self._stream.is_finished and self._pending_error is None

    @property
    def trouble(self) -> ClientError | None:
        """The reason why no records arrive."""
        return self._stream.trouble

    def poll(self, timeout_ms: float) -> Sequence[Chunk]:
        """Return the next record set.

        Raises:
            CorruptRecordsError: A batch is corrupt, and errors are not skipped.
        """
        if self._pending_error is not None:
            raise self._pending_error
        try:
            found = self._stream.poll(timeout_ms)
        except CorruptRecordsError as error:
            self._errors.handle(error)
            self._stream.seek(error.partition, error.next_offset)
            return (Chunk(error.partition, (), error.next_offset),)
        if found is None:
            return ()
        partition = TopicPartition(found.topic, found.partition)
        try:
            return (Chunk(partition, read_records(found), found.end_offset),)
        except CorruptBatchError as error:
            return (self._readable(partition, found, error),)

    def _readable(
        self, partition: TopicPartition, found: RecordSet, cause: CorruptBatchError
    ) -> Chunk:
        """Return the readable records of a set.

        Without skipping, return only the records before the first error.
        """
        try:
            spans = visible_batches(found)
        except CorruptBatchError:
            error = _corrupt(partition, found.first_offset, found.end_offset, cause)
            self._errors.handle(error)
            return Chunk(partition, (), found.end_offset)
        readable: list[CompiledRecord] = []
        next_offset = found.end_offset
        for span in spans:
            try:
                readable += span_records(found.data, span)
            except CorruptBatchError as reason:
                first = max(span.base_offset, found.first_offset)
                error = _corrupt(partition, first, span.next_offset, reason)
                if not self._errors.skip:
                    self._pending_error, next_offset = error, first
                    break
                self._errors.handle(error)
        kept = [r for r in readable if found.first_offset <= r.offset < found.end_offset]
        return Chunk(partition, kept, next_offset)

    def commit(self, printed: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets for a group without members."""
        if self._group is not None:
            self._client.commit_offsets(self._group, printed)


def _corrupt(
    partition: TopicPartition, offset: int, next_offset: int, cause: CorruptBatchError
) -> CorruptRecordsError:
    return CorruptRecordsError(partition, offset, str(cause), next_offset)
