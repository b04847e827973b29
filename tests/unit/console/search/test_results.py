"""The rows of a search are bounded, and the newest ones replace older ones."""

from __future__ import annotations

from hypothesis import given, strategies as st

from barnabas.console.search.columns import parse_columns
from barnabas.console.search.results import Results
from unit.console.search.records import decoded

COLUMNS = parse_columns("key,value")


def places(results: Results) -> list[tuple[int, int]]:
    return [(row.message.partition, row.message.offset) for row in results.rows]


def test_rows_stay_in_the_order_of_the_search() -> None:
    results = Results(COLUMNS, 3, keeps_newest=False)
    for offset, timestamp in enumerate((30, 10, 20)):
        assert not results.is_full
        results.add(decoded(b"v", offset=offset, timestamp=timestamp))
    assert results.is_full
    assert places(results) == [(0, 0), (0, 1), (0, 2)]
    assert results.version == 3


RECORDS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20)), max_size=30)


@given(RECORDS, st.integers(1, 8), st.integers(1, 10))
def test_the_newest_rows_are_kept_and_the_place_of_the_others_is_known(
    given_records: list[tuple[int, int]], limit: int, window: int
) -> None:
    """Windows go backwards, and timestamps need not rise with offsets."""
    results = Results(COLUMNS, limit, keeps_newest=True)
    records = [
        decoded(b"v", offset=offset, partition=partition, timestamp=timestamp)
        for offset, (partition, timestamp) in enumerate(given_records)
    ]
    for end in range(len(records), 0, -window):
        results.begin_window()
        for record in records[max(0, end - window) : end]:
            results.add(record)
    found = places(results)
    assert len(found) == min(limit, len(records))
    for partition in range(3):
        offsets = [each.offset for each in records if each.partition == partition]
        kept = [offset for number, offset in found if number == partition]
        assert kept == sorted(offsets, reverse=True)[: len(kept)]
        dropped = offsets[: len(offsets) - len(kept)]
        assert results.dropped.get(partition, 0) == max(dropped, default=-1) + 1


@given(RECORDS, st.integers(1, 8))
def test_rows_with_rising_timestamps_are_in_their_order(
    given_records: list[tuple[int, int]], limit: int
) -> None:
    results = Results(COLUMNS, limit, keeps_newest=True)
    results.begin_window()
    rising = sorted(given_records, key=lambda each: each[1])
    all_places = [(time, partition, n) for n, (partition, time) in enumerate(rising)]
    for time, partition, offset in all_places:
        results.add(decoded(b"v", offset=offset, partition=partition, timestamp=time))
    assert places(results) == [each[1:] for each in sorted(all_places, reverse=True)[:limit]]


def test_large_rows_are_bounded_too() -> None:
    results = Results(COLUMNS, 10**6, keeps_newest=False)
    while not results.is_full:
        results.add(decoded(b"x" * 2000, key=b"y" * 2000, offset=len(results)))
    assert 1500 < len(results) < 2000
