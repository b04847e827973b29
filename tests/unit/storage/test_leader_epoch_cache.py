"""Leader epochs and their start offsets."""

from __future__ import annotations

import pytest

from barnabas.storage.files.checkpoint import CheckpointError
from barnabas.storage.files.leader_epoch_cache import (
    EpochEntry,
    LeaderEpochCache,
    decode_epochs,
    encode_epochs,
)
from unit.storage.storage_fixtures import Bench


@pytest.fixture
def cache() -> LeaderEpochCache:
    made = LeaderEpochCache(Bench().disk, "/data")
    for epoch, start in ((1, 0), (3, 10), (4, 25)):
        made.assign(epoch, start)
    return made


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [(-1, (-1, -1)), (0, (0, 0)), (1, (1, 10)), (2, (1, 10)), (3, (3, 25)), (4, (4, 40)),
     (5, (-1, -1))],
)  # fmt: skip
def test_the_end_of_an_epoch_is_the_start_of_the_next(
    cache: LeaderEpochCache, epoch: int, answer: tuple[int, int]
) -> None:
    assert cache.end_offset_for(epoch, 40) == answer


def test_an_empty_cache_knows_no_epoch() -> None:
    cache = LeaderEpochCache(Bench().disk, "/data")
    assert cache.latest_epoch is None
    assert cache.end_offset_for(0, 5) == (-1, -1)


def test_a_new_entry_removes_contradicting_entries(cache: LeaderEpochCache) -> None:
    cache.assign(5, 20)
    assert cache.entries == [(1, 0), (3, 10), (5, 20)]


def test_a_truncation_at_the_end_drops_epochs_that_begin_there_or_later(
    cache: LeaderEpochCache,
) -> None:
    cache.truncate_from_end(10)
    assert cache.entries == [(1, 0)]


def test_a_truncation_at_the_start_raises_the_first_epoch_that_remains(
    cache: LeaderEpochCache,
) -> None:
    cache.truncate_from_start(12)
    assert cache.entries == [(3, 12), (4, 25)]
    cache.truncate_from_start(100)
    assert cache.entries == [(4, 100)]


def test_epochs_are_found_by_offset_with_their_neighbors(cache: LeaderEpochCache) -> None:
    assert [cache.epoch_for_offset(offset) for offset in (0, 9, 10, 30)] == [1, 1, 3, 4]
    assert cache.previous_epoch(4) == 3
    assert cache.previous_epoch(1) is None


def test_the_file_has_kafkas_format_and_is_read_back(cache: LeaderEpochCache) -> None:
    disk = cache._disk
    lines = disk.read("/data/leader-epoch-checkpoint").split(b"\n")
    assert [line.rstrip() for line in lines] == [b"0", b"3", b"1 0", b"3 10", b"4 25", b""]
    again = LeaderEpochCache(disk, "/data")
    assert again.load()
    assert again.entries == cache.entries


def test_an_epoch_without_records_is_not_written_before_its_first_record() -> None:
    disk = Bench().disk
    cache = LeaderEpochCache(disk, "/data")
    cache.assign(1, 0)
    before = disk.read(cache.path)
    cache.announce(2, 10)
    assert cache.latest_epoch == 2
    assert disk.read(cache.path) == before
    cache.assign(2, 10)
    again = LeaderEpochCache(disk, "/data")
    assert again.load()
    assert again.entries == [(1, 0), (2, 10)]


def test_epochs_without_records_are_removed_when_the_log_opens(cache: LeaderEpochCache) -> None:
    cache.forget_from(25)
    assert cache.entries == [(1, 0), (3, 10)]
    cache.announce(7, 25)
    cache.assign(7, 25)
    again = LeaderEpochCache(cache._disk, "/data")
    again.load()
    assert again.entries == [(1, 0), (3, 10), (7, 25)]


def test_a_cleared_cache_leaves_no_entry_in_the_file() -> None:
    cache = LeaderEpochCache(Bench().disk, "/data")
    cache.assign(1, 5)
    # The log opens, without the records of the epoch.
    cache.forget_from(5)
    cache.clear()
    again = LeaderEpochCache(cache._disk, "/data")
    assert again.load()
    assert again.entries == []


def test_epochs_are_listed_up_to_an_offset(cache: LeaderEpochCache) -> None:
    assert cache.entries_until(0) == []
    assert cache.entries_until(10) == [(1, 0)]
    assert cache.entries_until(11) == [(1, 0), (3, 10)]
    assert cache.entries_until(100) == cache.entries


@pytest.mark.parametrize(
    ("start", "end", "answer"),
    [(0, 100, [(1, 0), (3, 10), (4, 25)]), (12, 25, [(3, 12)]), (10, 26, [(3, 10), (4, 25)]),
     (5, 11, [(1, 5), (3, 10)]), (30, 40, [(4, 30)])],
)  # fmt: skip
def test_the_epochs_of_a_range_begin_in_it(
    cache: LeaderEpochCache, start: int, end: int, answer: list[tuple[int, int]]
) -> None:
    assert cache.entries_in(start, end) == answer


def test_a_range_before_all_epochs_has_those_that_begin_in_it(cache: LeaderEpochCache) -> None:
    cache.replace([EpochEntry(3, 10), EpochEntry(4, 25)])
    assert cache.entries_in(0, 10) == []
    assert cache.entries_in(5, 30) == [(3, 10), (4, 25)]
    assert cache.first_offset == 10


def test_lost_earlier_epochs_are_added_before_the_known_ones(cache: LeaderEpochCache) -> None:
    known = cache.entries
    cache.replace([EpochEntry(3, 15), EpochEntry(4, 25)])
    cache.restore_start([*known[:2], EpochEntry(9, 12), EpochEntry(2, 20)])
    assert cache.entries == known
    again = LeaderEpochCache(cache._disk, "/data")
    assert again.load()
    assert again.entries == known


def test_epochs_of_a_copy_are_encoded_as_kafka_does(cache: LeaderEpochCache) -> None:
    content = encode_epochs(cache.entries)
    assert content == b"0\n3\n1 0\n3 10\n4 25\n"
    assert decode_epochs(content) == cache.entries
    assert decode_epochs(encode_epochs([])) == []


@pytest.mark.parametrize(
    "content",
    [b"", b"1\n0\n", b"0\n1\n1 x\n", b"0\n2\n1 0\n", b"0\n2\n1 5\n1 6\n", b"0\n2\n1 5\n2 5\n",
     b"0\n1\n-1 0\n", b"0\n1\n1 9223372036854775808\n", b"0\n1\n1 2 3\n", b"\xff\n0\n\n"],
)  # fmt: skip
def test_damaged_epochs_of_a_copy_are_refused(content: bytes) -> None:
    with pytest.raises(CheckpointError):
        decode_epochs(content)
