"""The log of a replica on disk: the bytes of its batches, read without the process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from barnabas.record.batch import batches
from barnabas.record.reader import records
from barnabas.record.record import CorruptBatchError


@dataclass(frozen=True)
class ReplicaLog:
    """All complete batches of a replica, in order."""

    data: bytes
    # (base offset, last offset, leader epoch) of each batch.
    spans: tuple[tuple[int, int, int], ...]

    @property
    def end_offset(self) -> int:
        """The offset after the last record."""
        return self.spans[-1][1] + 1 if self.spans else 0

    @property
    def start_offset(self) -> int | None:
        """The offset of the first record; None for an empty log."""
        return self.spans[0][0] if self.spans else None

    def data_from(self, offset: int) -> bytes:
        """Return the bytes of the batches that begin at an offset or later."""
        for position, header in batches(self.data):
            if header.base_offset >= offset:
                return self.data[position:]
        return b""

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """The leader epochs in order, as (epoch, first offset)."""
        found: list[tuple[int, int]] = []
        for base, _, epoch in self.spans:
            if not found or found[-1][0] != epoch:
                found.append((epoch, base))
        return found

    def latest(self) -> dict[bytes, tuple[int, bytes | None]]:
        """Return (offset, value) of the last record of each key, which compaction keeps."""
        return {
            record.key: (record.offset, record.value)
            for position, header in batches(self.data)
            if not header.is_control
            for record in records(self.data, position)
            if record.key is not None
        }

    def values(self) -> list[tuple[int, bytes | None]]:
        """Return (offset, value) of each record."""
        return [
            (record.offset, record.value)
            for position, header in batches(self.data)
            if not header.is_control
            for record in records(self.data, position)
        ]


def read_replica(data_directory: Path, topic: str, partition: int = 0) -> ReplicaLog:
    """Read the segments of a replica, without incomplete records at their end."""
    data = bytearray()
    spans: list[tuple[int, int, int]] = []
    for path in segments(data_directory, topic, partition):
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            continue
        end = 0
        try:
            for position, header in batches(content):
                end = position + header.size
                spans.append(
                    (header.base_offset, header.last_offset, header.partition_leader_epoch)
                )
        except CorruptBatchError:
            pass
        data += content[:end]
    return ReplicaLog(bytes(data), tuple(spans))


def segments(data_directory: Path, topic: str, partition: int = 0) -> list[Path]:
    """Return the segment files of a replica, oldest first."""
    return sorted((data_directory / f"{topic}-{partition}").glob("*.log"))


def lose_last_records(data_directory: Path, topic: str, count: int) -> None:
    """Remove the last records of a replica of a stopped node, as after a loss of power.

    Only complete batches are removed, because recovery truncates an incomplete batch in any case.
    """
    path = segments(data_directory, topic)[-1]
    content = path.read_bytes()
    found = [(position, header) for position, header in batches(content)]
    while count:
        assert found, f"{path} has fewer records"
        position, header = found.pop()
        assert header.record_count <= count, "the last records share a batch with others"
        count -= header.record_count
        content = content[:position]
    path.write_bytes(content)
