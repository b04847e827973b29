"""Records out of raw record sets: bounds applied, aborted transactions left out (KIP-98)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.record.batch import MAGIC_V2, BatchHeader, read_header
from barnabas.record.columns import batch_records, iter_records
from barnabas.record.conversion import entries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.client.fetcher import RecordSet
    from barnabas.record.compiled import CompiledRecord

__all__ = ["ConsumedRecord", "decode_record_set", "read_records"]

_ABORT_KEY = b"\x00\x00\x00\x00"


class ConsumedRecord(NamedTuple):
    """One record as users get it."""

    topic: str
    partition: int
    offset: int
    # Milliseconds; of the kind that `timestamp_type` says: 0 create time, 1 log append time.
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


def read_records(records: RecordSet) -> list[CompiledRecord]:
    """The records of a set as the compiled reader makes them: the fast way to their attributes.

    They have `offset`, `timestamp`, `timestamp_type`, `key`, `value` and `headers`; control records
    and aborted transactions are left out.

    Raises:
        CorruptBatchError: malformed bytes.
    """
    found = list(_committed(records) if records.aborted else iter_records(records.data))
    first, end = records.first_offset, records.end_offset
    if found and (found[0].offset < first or found[-1].offset >= end):
        return [record for record in found if first <= record.offset < end]
    return found


def decode_record_set(records: RecordSet) -> list[ConsumedRecord]:
    """The same as named tuples that know their topic and partition."""
    topic, partition = records.topic, records.partition
    make = ConsumedRecord._make
    return [
        make((topic, partition, r.offset, r.timestamp, r.timestamp_type, r.key, r.value, r.headers))
        for r in read_records(records)
    ]


def _committed(records: RecordSet) -> Iterator[CompiledRecord]:
    """Records of batches outside of the aborted transactions that the answer listed."""
    data = records.data
    waiting = sorted(records.aborted, key=lambda transaction: transaction[1], reverse=True)
    aborting: set[int] = set()
    for position, _size, magic in entries(data):
        if magic != MAGIC_V2:
            continue
        header = read_header(data, position)
        while waiting and waiting[-1][1] <= header.last_offset:
            aborting.add(waiting.pop()[0])
        if header.is_control:
            if _is_abort(data, position, header):
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            yield from batch_records(data, position, header)


def _is_abort(data: bytes, position: int, header: BatchHeader) -> bool:
    marker = batch_records(data, position, header)
    key = marker[0].key if marker else None
    return key is not None and key[:4] == _ABORT_KEY
