"""Splitting a batch that is too large: the halves contain all records."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from barnabas.client.producer.producer_batch import ProducerBatch, RecordMetadata, split
from barnabas.client.topic_partition import TopicPartition
from barnabas.record.batch import check_crc, read_header
from barnabas.record.compression import CODES, NAMES
from barnabas.record.reader import records

TP = TopicPartition("t", 0)
CONTENT = st.none() | st.binary(max_size=40)
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 2**40),
        CONTENT,
        CONTENT,
        st.lists(st.tuples(st.text(max_size=5), CONTENT), max_size=3),
    ),
    min_size=2,
    max_size=20,
)
Given = list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]


def closed(given_records: Given, compression: int = 0) -> ProducerBatch:
    batch = ProducerBatch(TP, 4, 10_000, 77.0)
    batch.append_first(*given_records[0])
    for position, record in enumerate(given_records[1:], 1):
        assert batch.append(position, *record) is not None
    batch.count = len(given_records)
    batch.close(compression, None)
    return batch


@given(RECORDS)
def test_the_halves_have_all_records_in_order(given_records: Given) -> None:
    halves = split(closed(given_records), 0, None)
    found = []
    for half in halves:
        half.set_crc()
        assert half.data is not None
        header = read_header(half.data)
        assert check_crc(half.data, 0, header)
        timestamps = [r.timestamp for r in records(half.data)]
        assert (header.base_timestamp, header.max_timestamp) == (timestamps[0], max(timestamps))
        found += [(r.timestamp, r.key, r.value, list(r.headers)) for r in records(half.data)]
    assert found == given_records
    assert abs(halves[0].count - halves[1].count) <= 1


@pytest.mark.parametrize("compression", NAMES)
def test_the_halves_are_compressed_as_the_whole_was(compression: str) -> None:
    code = CODES[compression]
    for half in split(closed([(0, None, b"x" * 100, [])] * 4, code), code, None):
        assert half.data is not None
        assert read_header(half.data).compression == code


def test_sequences_stay_with_their_records_and_wrap_around() -> None:
    batch = closed([(0, None, b"x", [])] * 5)
    batch.set_producer(9, 1, 0x7FFFFFFE)
    first, second = split(batch, 0, None)
    assert (first.base_sequence, second.base_sequence) == (0x7FFFFFFE, 0)
    assert (second.producer_id, second.producer_epoch) == (9, 1)


def test_callbacks_stay_with_their_records() -> None:
    batch = closed([(0, None, b"x", [])] * 4)
    told: list[tuple[int, int]] = []

    def teller(index: int):  # type: ignore[no-untyped-def]
        def tell(where: RecordMetadata | None, _error: object) -> None:
            assert where is not None
            told.append((index, where.offset))

        return tell

    batch.callbacks = [(index, 0, teller(index)) for index in range(4)]
    first, second = split(batch, 0, None)
    first.complete(100, -1)
    second.complete(200, -1)
    first.run_callbacks()
    second.run_callbacks()
    assert told == [(0, 100), (1, 101), (2, 200), (3, 201)]
