"""Lookups in the indexes of a remote segment, and damaged indexes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from barnabas.storage.remote.loaded_indexes import LoadedIndexes
from barnabas.storage.remote.remote_storage import RemoteDamagedError
from barnabas.storage.segment.transaction_index import AbortedEntry
from unit.storage.remote.stored_segments import segment_at

# Offsets 100 to 149, 1000 bytes.
SEGMENT = segment_at(100)


def offsets(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", *each) for each in entries)


def times(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", *each) for each in entries)


def aborted(*entries: tuple[int, int, int, int]) -> bytes:
    return b"".join(struct.pack(">hqqqq", 0, *each) for each in entries)


def loaded(offset_index: bytes = b"", time_index: bytes = b"", txn: bytes = b"") -> LoadedIndexes:
    return LoadedIndexes(SEGMENT, (offset_index, time_index, txn))


def test_without_entries_a_search_begins_at_the_start() -> None:
    assert loaded().position_of(120) == 0
    assert loaded().position_of_time(5, 100) == 0
    assert loaded().aborted(100, 150) == ([], False)


def test_the_entry_at_or_before_an_offset_is_found() -> None:
    indexes = loaded(offsets((9, 200), (19, 400), (39, 800)))
    assert [indexes.position_of(each) for each in (100, 108, 109, 118, 119, 149)] == [
        0,
        0,
        200,
        200,
        400,
        800,
    ]


def test_padding_at_the_end_of_an_index_is_ignored() -> None:
    indexes = loaded(offsets((9, 200)) + bytes(80), times((5, 9)) + bytes(120))
    assert indexes.position_of(149) == 200
    assert indexes.position_of_time(9, 100) == 200


def test_a_time_leads_to_the_position_of_its_offset() -> None:
    indexes = loaded(offsets((9, 200), (19, 400)), times((1_000, 9), (2_000, 19)))
    assert indexes.position_of_time(999, 100) == 0
    assert indexes.position_of_time(1_000, 100) == 200
    assert indexes.position_of_time(1_500, 100) == 200
    assert indexes.position_of_time(5_000, 100) == 400
    assert indexes.position_of_time(999, 130) == 400


def test_what_reads_have_found_is_nearer_than_the_entries() -> None:
    indexes = loaded(offsets((9, 200), (39, 800)))
    indexes.learn(125, 500)
    assert indexes.position_of(124) == 200
    assert indexes.position_of(125) == 500
    assert indexes.position_of(130) == 500
    assert indexes.position_of(140) == 800


def test_only_the_latest_places_are_remembered() -> None:
    segment = segment_at(0, size=10_000)
    segment = replace(segment, end_offset=999)
    indexes = LoadedIndexes(segment, (b"", b"", b""))
    for offset in range(500):
        indexes.learn(offset, 10 * offset)
    assert indexes.position_of(499) == 4_990
    assert indexes.position_of(600) == 4_990
    assert indexes.position_of(5) == 0


def test_a_boundary_is_an_entry_between_two_positions() -> None:
    indexes = loaded(offsets((9, 200), (19, 400)))
    assert indexes.boundary(100, 399) == 200
    assert indexes.boundary(100, 400) == 400
    assert indexes.boundary(201, 399) is None


def test_aborted_transactions_of_a_range_are_those_that_overlap_it() -> None:
    indexes = loaded(txn=aborted((7, 101, 110, 111), (8, 105, 120, 121), (9, 130, 140, 141)))
    assert indexes.aborted(100, 104) == ([AbortedEntry(7, 101, 110, 111)], True)
    found, is_complete = indexes.aborted(111, 130)
    assert ([each.producer_id for each in found], is_complete) == ([8], True)
    found, is_complete = indexes.aborted(111, 145)
    assert ([each.producer_id for each in found], is_complete) == ([8, 9], False)


@pytest.mark.parametrize(
    "parts",
    [
        (offsets((9, 200))[:-1] + b"\1x", b"", b""),
        (offsets((9, 200), (9, 400)), b"", b""),
        (offsets((9, 200), (19, 200)), b"", b""),
        (offsets((9, 1_000)), b"", b""),
        (offsets((50, 200)), b"", b""),
        (offsets((-1, 200)), b"", b""),
        (offsets((9, -200)), b"", b""),
        (b"", times((5, 9), (4, 19)), b""),
        (b"", times((5, 9), (6, 8)), b""),
        (b"", times((5, 50)), b""),
        (b"", b"", aborted((7, 101, 110, 111))[:-1]),
        (b"", b"", aborted((7, 111, 110, 111))),
        (b"", b"", aborted((7, 101, 150, 151))),
        (b"", b"", aborted((7, 101, 110, 111), (7, 101, 110, 111))),
        (b"", b"", b"\0\1" + aborted((7, 101, 110, 111))[2:]),
    ],
)
def test_damaged_indexes_are_refused(parts: tuple[bytes, bytes, bytes]) -> None:
    with pytest.raises(RemoteDamagedError):
        LoadedIndexes(SEGMENT, parts)


@given(st.tuples(st.binary(max_size=64), st.binary(max_size=64), st.binary(max_size=80)))
def test_any_bytes_are_refused_or_lead_into_the_segment(parts: tuple[bytes, bytes, bytes]) -> None:
    try:
        indexes = LoadedIndexes(SEGMENT, parts)
    except RemoteDamagedError:
        return
    for offset in range(100, 150, 7):
        assert 0 <= indexes.position_of(offset) < SEGMENT.size
        assert 0 <= indexes.position_of_time(offset, offset) < SEGMENT.size
        indexes.aborted(offset, offset + 10)
