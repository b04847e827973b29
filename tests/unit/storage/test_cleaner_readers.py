"""What compaction writes is read by all of our readers: gaps, empty batches, delete horizons."""

from __future__ import annotations

import pytest

from barnabas.client.fetch.record_set import RecordSet, read_records, scan_records
from barnabas.coordinator.runtime.loader import Loader
from barnabas.record.compression import GZIP, NONE, ZSTD
from barnabas.record.decoded_columns import decode_record_set
from barnabas.record.format_conversion import down_convert
from barnabas.record.legacy import messages
from barnabas.runtime.executor import InlineExecutor
from unit.storage.cleaner_fixtures import CleanerBench, all_batches
from unit.storage.storage_fixtures import content, read

PRODUCER = {"producer_id": 7, "producer_epoch": 0}


def cleaned(compression: int) -> CleanerBench:
    """Empty batches in front, in between and at the end of the cleaned part, and a tombstone."""
    bench = CleanerBench()
    bench.put((b"a", b"1"), base_sequence=0, compression=compression, **PRODUCER)
    bench.put((b"a", b"2"), (b"b", b"1"), (b"c", b"1"), compression=compression)
    bench.put((b"b", None), (b"c", b"2"), (b"d", b"1"), compression=compression)
    bench.put((b"d", b"2"), compression=compression)
    bench.put((b"e", b"1"), base_sequence=0, producer_id=8, producer_epoch=0)
    bench.put((b"e", b"2"))
    bench.seal_and_clean()
    assert 0 in [header.record_count for header, _ in all_batches(bench.log)]
    return bench


EXPECTED = [
    (1, b"a", b"2"),
    (4, b"b", None),
    (5, b"c", b"2"),
    (7, b"d", b"2"),
    (9, b"e", b"2"),
]


def fetched(bench: CleanerBench) -> bytes:
    return content(read(bench.log))


@pytest.mark.parametrize("compression", [NONE, GZIP, ZSTD])
def test_the_barnabas_client_reads_a_compacted_log(compression: int) -> None:
    data = fetched(cleaned(compression))
    assert scan_records(data, check_crcs=True)[:2] == (10, len(data))
    records = read_records(RecordSet("t", 0, 0, 10, data, 10, 0, ()))
    assert [(record.offset, record.key, record.value) for record in records] == EXPECTED


@pytest.mark.parametrize("compression", [NONE, GZIP, ZSTD])
def test_the_spark_source_reads_a_compacted_log(compression: int) -> None:
    offsets = [
        offset
        for part in decode_record_set(fetched(cleaned(compression)))
        for offset in part.offsets.tolist()
    ]
    assert offsets == [offset for offset, _, _ in EXPECTED]


def test_spark_reads_a_set_of_empty_batches() -> None:
    bench = cleaned(NONE)
    empty = fetched(bench)[:61]
    assert all_batches(bench.log)[0][0].record_count == 0
    assert [len(part.offsets) for part in decode_record_set(empty)] in ([], [0])


@pytest.mark.parametrize("magic", [0, 1])
def test_old_clients_read_a_compacted_log(magic: int) -> None:
    converted = down_convert(fetched(cleaned(NONE)), magic)
    found = [(each.offset, each.key, each.value) for each in messages(memoryview(converted))]
    assert found == EXPECTED


def test_a_coordinator_loads_a_compacted_log() -> None:
    class Replayed:
        """Stores its arguments."""

        def __init__(self) -> None:
            self.records: list[tuple[int, bytes, bytes | None]] = []

            self.committed: list[int] = []

        def replay(self, offset: int, key: bytes, value: bytes | None, _producer_id: int) -> None:
            self.records.append((offset, key, value))

        def commit(self, offset: int) -> None:
            self.committed.append(offset)

    bench = cleaned(NONE)
    shard, outcomes = Replayed(), []
    Loader(bench.log, shard, bench.due, InlineExecutor(), outcomes.append).start()
    while bench.due.step():
        pass
    assert (shard.records, outcomes) == (EXPECTED, [True])


def test_a_fetch_at_every_offset_makes_progress() -> None:
    bench = cleaned(NONE)
    for offset in range(10):
        data = content(read(bench.log, offset, max_bytes=1))
        assert scan_records(data, check_crcs=True).next_offset > offset
