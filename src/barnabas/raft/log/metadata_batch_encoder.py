"""Encodes the records of one metadata batch, one after the other, before their offset is known.

Ten thousand records take 60 ms: a controller encodes them in slices, and appends them afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.record_frame import encode_metadata_record
from barnabas.raft.errors import MetadataBatchTooLargeError
from barnabas.record.builder import BatchBuilder

if TYPE_CHECKING:
    from barnabas.protocol.schema import Record

__all__ = ["METADATA_BATCH_BYTES_MAX", "MetadataBatchEncoder"]

# Kafka's maximum size of a batch of metadata records, bytes.
METADATA_BATCH_BYTES_MAX = 8 * 1024 * 1024


class MetadataBatchEncoder:
    """Collects encoded metadata records for one batch."""

    __slots__ = ("_builder", "timestamp_ms")

    def __init__(self, timestamp_ms: int) -> None:
        # Timestamp of all records, wall clock in ms.
        self.timestamp_ms = timestamp_ms
        self._builder = BatchBuilder()

    def add(self, record: Record, version: int) -> None:
        """Encode a record in a version, and add it.

        Raises:
            ProtocolError: the version cannot represent a value of the record.
        """
        self._builder.append(self.timestamp_ms, None, encode_metadata_record(record, version))

    def build(self, base_offset: int, epoch: int) -> bytearray:
        """Return the batch.

        Args:
            base_offset: offset of the first record.
            epoch: leader epoch of the quorum.

        Raises:
            MetadataBatchTooLargeError: the batch exceeds the maximum size.
        """
        builder = self._builder
        assert not builder.is_empty, "a batch needs a record"
        if builder.estimated_size > METADATA_BATCH_BYTES_MAX:
            raise MetadataBatchTooLargeError(
                f"{builder.record_count} metadata records take {builder.estimated_size} bytes;"
                f" one batch may have {METADATA_BATCH_BYTES_MAX}"
            )
        builder.base_offset, builder.leader_epoch = base_offset, epoch
        return builder.build()

    def __len__(self) -> int:
        return self._builder.record_count
