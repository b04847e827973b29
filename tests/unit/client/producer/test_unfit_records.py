"""Records with parts of the wrong type: their errors, and the other records."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client.errors import UnfitRecordError
from barnabas.client.producer.user_objects import raise_unfit
from barnabas.record.reader import read_batches
from unit.client.producer.accumulators import TP, accumulator, add
from unit.client.scripted_cluster import HandTime

FIT = (b"key", b"value", [("h", b"x"), ("none", None)], 7)
UNFIT: list[tuple[tuple[Any, ...], str]] = [
    (("key", b"v", (), None), "its key is a str; give bytes, or set key_serializer"),
    ((None, "text", (), None), "its value is a str; give bytes, or set value_serializer"),
    ((None, 5, (), None), "its value is an int; give bytes, or set value_serializer"),
    ((None, b"v", {"a": b"b"}, None), "its headers are a dict; give pairs"),
    ((None, b"v", 5, None), "its headers are an int; give pairs"),
    ((None, b"v", ["a"], None), "one of its headers is a str; give pairs"),
    ((None, b"v", [(b"a", b"b")], None), "the name of a header is a bytes; give pairs"),
    ((None, b"v", [("a", "b")], None), "its header 'a' is a str; give pairs"),
    ((None, b"v", (), "now"), "its timestamp is a str; give milliseconds"),
]


@pytest.mark.parametrize(("record", "told"), UNFIT)
def test_the_error_names_the_invalid_part(record: tuple[Any, ...], told: str) -> None:
    cause = TypeError("something that does not help")
    with pytest.raises(UnfitRecordError) as caught:
        raise_unfit("t", record, cause)
    assert str(caught.value).startswith(f"t: the record cannot be sent: {told}")
    assert isinstance(caught.value, TypeError)
    assert caught.value.__cause__ is cause


def test_an_error_without_a_wrong_part_is_raised_unchanged() -> None:
    cause = TypeError("of somebody else")
    with pytest.raises(TypeError) as caught:
        raise_unfit("t", FIT, cause)
    assert caught.value is cause


@pytest.mark.parametrize("record", [record for record, _ in UNFIT])
def test_an_invalid_first_record_starts_no_batch(record: Any) -> None:
    waiting = accumulator(HandTime())
    with pytest.raises((TypeError, ValueError, AttributeError)):
        waiting.append(TP, record, 1000, None)
    assert waiting.is_empty
    assert waiting.queue(TP).is_empty
    assert not waiting.incomplete()
    waiting.make_all_due()
    assert waiting.take(waiting.queue(TP)) is None
    add(waiting, b"the next")
    waiting.make_all_due()
    assert values(waiting) == [b"the next"]


@pytest.mark.parametrize("record", [record for record, _ in UNFIT])
def test_records_before_and_after_an_invalid_record_are_sent(record: Any) -> None:
    waiting = accumulator(HandTime())
    add(waiting, b"before")
    with pytest.raises((TypeError, ValueError, AttributeError)):
        waiting.append(TP, record, 1000, None)
    with pytest.raises(UnfitRecordError):
        waiting.extend(TP, iter([(None, b"first", (), None), record]), None, 1000)
    add(waiting, b"behind")
    waiting.make_all_due()
    assert values(waiting) == [b"before", b"first", b"behind"]
    assert waiting.take(waiting.queue(TP)) is None


def values(waiting: Any) -> list[bytes | None]:
    """The next batch, whose count is its number of records."""
    batch = waiting.take(waiting.queue(TP))
    found = [record.value for _, records in read_batches(bytes(batch.data)) for record in records]
    assert batch.count == len(found)
    return found
