"""Which offsets a search examines, and in which order."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from barnabas.client.topic_partition import TopicPartition
from barnabas.console.forms import Fields, FormError
from barnabas.console.search.ranges import Place, Plan, parse_places, place_of, places_text
from barnabas.console.search.zones import UTC_ZONE


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({}, Place()),
        ({"from": "newest"}, Place("newest")),
        ({"from": "beginning"}, Place("beginning")),
        ({"from": "beginning", "offset": "5"}, Place("beginning")),
        ({"from": "offset", "offset": "5"}, Place("offset", 5)),
        ({"offset": "5"}, Place("offset", 5)),
        ({"from": "newest", "time": "1970-01-01T00:00:01"}, Place("time", 1000)),
        ({"from": "time", "time": "1969-01-01T00:00:01"}, Place("time", 0)),
        ({"at": "0-5.2-7", "from": "beginning"}, Place("at", offsets={0: 5, 2: 7})),
        ({"before": "0-5"}, Place("before", offsets={0: 5})),
    ],
)
def test_a_place_is_in_the_address(fields: dict[str, str], place: Place) -> None:
    assert place_of(Fields(fields.items()), UTC_ZONE) == place


@pytest.mark.parametrize("fields", [{"from": "offset"}, {"from": "time"}, {"offset": "x"}])
def test_a_place_without_its_number_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(FormError):
        place_of(Fields(fields.items()), UTC_ZONE)


@given(st.dictionaries(st.integers(0, 999_999_999), st.integers(0, 2**63 - 1), max_size=5))
def test_places_are_read_as_they_were_written(offsets: dict[int, int]) -> None:
    assert parse_places(places_text(offsets)) == offsets


@given(st.text("0123456789-.x", max_size=60))
def test_malformed_places_are_left_out(text: str) -> None:
    for number, offset in parse_places(text).items():
        assert number >= 0
        assert 0 <= offset < 2**63


RANGES = st.dictionaries(
    st.integers(0, 4).map(lambda number: TopicPartition("t", number)),
    st.tuples(st.integers(0, 50), st.integers(0, 50)),
)


@given(RANGES, st.none() | st.integers(1, 20), st.data())
def test_each_offset_is_examined_once_also_with_pauses(
    ranges: dict[TopicPartition, tuple[int, int]], window: int | None, data: st.DataObject
) -> None:
    plan = Plan(ranges, window)
    wanted = {(tp, offset) for tp, (start, end) in ranges.items() for offset in range(start, end)}
    assert plan.total == plan.remaining == len(wanted)
    seen: list[tuple[TopicPartition, int]] = []
    newest = {tp: end for tp, (_, end) in ranges.items()}
    while plan.begin_step():
        left = {}
        newest_end = {tp: end for tp, (_, end) in plan.step.items()}
        for tp, (start, end) in plan.step.items():
            # A step is read from its first offset on, and windows go backwards.
            until = data.draw(st.integers(start, end))
            seen += [(tp, offset) for offset in range(start, until)]
            assert window is None or newest[tp] - start <= window
            if until < end or data.draw(st.booleans()):
                left[tp] = until
            if until == end:
                newest[tp] = min(offset for each, offset in seen if each == tp)
        plan.advance(left)
        if window is None and not data.draw(st.booleans()):
            continued = {TopicPartition("t", n): at for n, at in plan.next_offsets().items()}
            assert {tp: start for tp, (start, _) in plan.step.items()} == continued
        unfinished = dict(plan.step)
        assert unfinished.items() <= {tp: (at, newest_end[tp]) for tp, at in left.items()}.items()
        if unfinished and data.draw(st.booleans()):
            # The rest of a step is examined before the next one.
            assert plan.begin_step()
            assert plan.step == unfinished
        for tp, (start, end) in plan.step.items():
            seen += [(tp, offset) for offset in range(start, end)]
            newest[tp] = min(offset for each, offset in seen if each == tp)
        plan.advance({})
        assert plan.remaining == len(wanted) - len(seen)
    assert len(seen) == len(wanted)
    assert set(seen) == wanted
