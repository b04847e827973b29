"""Choices for messages that are sent again."""

from __future__ import annotations

import pytest

from barnabas.client.fetch.record_set import ConsumerRecord
from barnabas.client.topic_partition import TopicPartition
from barnabas.console.forms import Fields, FormError
from barnabas.console.messages.record_view import record_size
from barnabas.console.writing.resending import (
    RECORDS_MAX,
    Resending,
    _ranges,
    chosen_places,
)

SOURCE = ConsumerRecord("t", 2, 7, 1000, 0, b"k", b"v", (("a", b"1"), ("a", b"2"), ("b", None)))


def places(*texts: str) -> list[tuple[int, int]]:
    return chosen_places(Fields([("at", text) for text in texts]))


def test_checked_boxes_become_places_in_order_and_once() -> None:
    assert places("1-5", "0-12", "1-5") == [(0, 12), (1, 5)]


@pytest.mark.parametrize("texts", [(), ("x",), ("1",), ("-1-2",), ("1-2-3",), ("٣-1",)])
def test_missing_and_malformed_places_are_refused(texts: tuple[str, ...]) -> None:
    with pytest.raises(FormError):
        places(*texts)


def test_too_many_places_are_refused() -> None:
    assert len(places(*(f"0-{n}" for n in range(RECORDS_MAX)))) == RECORDS_MAX
    with pytest.raises(FormError, match="at most 100"):
        places(*(f"0-{n}" for n in range(RECORDS_MAX + 1)))


def test_places_near_each_other_are_read_together() -> None:
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    found = list(_ranges("t", [(0, 1), (0, 3), (0, 5000), (1, 5001)]))
    assert found == [(zero, 1, 4), (zero, 5000, 5001), (one, 5001, 5002)]


def parsed(**fields: str) -> Resending:
    given = {"topic": "t", "target": "u", "at": "2-7", **fields}
    return Resending.parse(Fields(given.items()))


def test_headers_are_copied_dropped_and_added() -> None:
    assert parsed().headers_of(SOURCE) == list(SOURCE.headers)
    changed = parsed(drop="a", add="c=3", origin="1").headers_of(SOURCE)
    assert changed == [
        ("b", None),
        ("c", b"3"),
        ("resent.from.topic", b"t"),
        ("resent.from.partition", b"2"),
        ("resent.from.offset", b"7"),
    ]


@pytest.mark.parametrize(("choice", "number"), [("same", 2), ("key", None), ("5", 5)])
def test_the_partition_is_chosen(choice: str, number: int | None) -> None:
    assert parsed(partition=choice).target_partition(SOURCE) == number


def test_a_wrong_partition_is_refused_at_its_field() -> None:
    with pytest.raises(FormError) as found:
        parsed(partition="x")
    assert found.value.field == "partition"


def test_the_size_counts_key_value_and_headers() -> None:
    assert record_size(SOURCE) == 1 + 1 + 2 + 2 + 1
