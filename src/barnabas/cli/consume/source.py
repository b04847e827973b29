"""Where `consume` has its records from: partitions of its own, or those that a group gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.client.record_decoding import read_records
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.errors import ClientError
    from barnabas.client.facade import Client
    from barnabas.client.record_stream import RecordStream
    from barnabas.record.compiled import CompiledRecord

__all__ = ["Chunk", "RangeSource", "Source"]


class Chunk(NamedTuple):
    """Records of one partition."""

    partition: TopicPartition
    records: Sequence[CompiledRecord]
    # Where reading goes on, behind records that are not shown, such as transaction markers.
    next_offset: int


class Source(Protocol):
    """Records as they come."""

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will come."""
        ...

    @property
    def trouble(self) -> ClientError | None:
        """Why nothing comes, if that is known: a broker does not answer."""
        ...

    def poll(self, timeout_ms: float) -> Sequence[Chunk]:
        """What there is, or what comes in time."""
        ...

    def commit(self, printed: Mapping[TopicPartition, int]) -> None:
        """Remember for the group, if there is one, where it has to go on."""
        ...


class RangeSource:
    """Partitions from an offset on, to another one or for ever.

    With a group its offsets are committed, without anybody being a member of it.
    """

    def __init__(self, client: Client, stream: RecordStream, group: str | None) -> None:
        self._client = client
        self._stream = stream
        self._group = group

    @property
    def is_finished(self) -> bool:
        """Whether all partitions are at their ends."""
        return self._stream.is_finished

    @property
    def trouble(self) -> ClientError | None:
        """Why nothing comes."""
        return self._stream.trouble

    def poll(self, timeout_ms: float) -> Sequence[Chunk]:
        """The next record set."""
        found = self._stream.poll(timeout_ms)
        if found is None:
            return ()
        partition = TopicPartition(found.topic, found.partition)
        return (Chunk(partition, read_records(found), found.end_offset),)

    def commit(self, printed: Mapping[TopicPartition, int]) -> None:
        """Commit for a group without members."""
        if self._group is not None:
            self._client.commit_offsets(self._group, printed)
