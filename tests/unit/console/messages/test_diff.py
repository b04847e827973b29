"""Two records are compared line by line, after they are masked."""

from __future__ import annotations

from barnabas.client.fetch.record_set import ConsumerRecord
from barnabas.console.differences import diff_records
from barnabas.console.messages.formats import Decoders
from barnabas.console.messages.masking import NO_MASKS, MaskRule, Masks
from barnabas.console.messages.record_view import RecordView

Headers = tuple[tuple[str, bytes | None], ...]


def marks(
    before: bytes | None,
    after: bytes | None,
    masks: Masks = NO_MASKS,
    headers: tuple[Headers, Headers] = ((), ()),
) -> dict[str, list[str] | None]:
    """The lines of each part, each with its mark."""
    view = RecordView(Decoders(), masks)
    records = [
        view.decode(ConsumerRecord("t", 0, 0, 0, 0, b"k", value, own))
        for value, own in zip((before, after), headers, strict=True)
    ]
    return {
        part.name: None
        if part.lines is None
        else [f"{each.mark}{each.text}" for each in part.lines]
        for part in diff_records(records[0], records[1])
    }


def test_another_order_of_members_is_no_difference() -> None:
    found = marks(b'{"a": 1, "b": {"c": 2, "d": 3}}', b'{"b":{"d":3,"c":2},"a":1}')
    assert found == {"Key": [], "Value": [], "Headers": []}


def test_changed_members_are_lines() -> None:
    found = marks(b'{"a": 1, "b": 2}', b'{"a": 1, "b": 3}')["Value"]
    assert found == ["{", '  "a": 1,', '-  "b": 2', '+  "b": 3', "}"]


def test_null_and_empty_values_differ() -> None:
    assert marks(None, b"")["Value"] == ["-null", "+empty"]
    assert marks(b"x", None)["Value"] == ["-x", "+null"]


def test_headers_are_compared_in_their_order() -> None:
    headers = ((("a", b"1"), ("b", None)), (("a", b"2"), ("b", None)))
    assert marks(b"", b"", headers=headers)["Headers"] == ["-a: 1", "+a: 2", "b: null"]


def test_masked_parts_look_equal() -> None:
    masks = Masks([MaskRule("*", "value", ("a",))], b"")
    assert marks(b'{"a": 1, "b": 1}', b'{"a": 2, "b": 1}', masks)["Value"] == []


def test_values_with_very_many_lines_are_not_compared() -> None:
    assert marks(b"a\n" * 6000, b"b\n" * 6000)["Value"] is None
