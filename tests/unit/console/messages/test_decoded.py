"""Keys and values as text: JSON, text and bytes, all bounded."""

from __future__ import annotations

import json

import pytest

from barnabas.client.fetch.record_set import ConsumerRecord
from barnabas.console.messages.decoded import LISTED_BYTES, ShownBytes, decode_plain
from barnabas.console.messages.formats import Decoders
from barnabas.console.messages.masking import NO_MASKS
from barnabas.console.messages.record_view import RecordView


def shown_bytes(data: bytes | None, limit: int) -> ShownBytes:
    """Bytes of no known format, as a page shows them."""
    return decode_plain(data).shown(limit)


def test_short_json_is_on_one_line_in_a_list() -> None:
    assert shown_bytes(b'{"a":[1,2]}', LISTED_BYTES).text == '{"a": [1, 2]}'
    assert shown_bytes(b'{"a":"%s"}' % (b"x" * 400), LISTED_BYTES).text.startswith("{\n  ")


def test_null_and_empty_differ() -> None:
    assert shown_bytes(None, 10).kind == "null"
    assert shown_bytes(b"", 10).kind == "empty"


def test_json_is_indented_and_keeps_numbers_order_and_repeated_names() -> None:
    shown = shown_bytes(b'{"b":1.10,"a":12345678901234567890123,"a":"\\u00e9"}', 9000)
    assert shown.kind == "json"
    assert [line.strip() for line in shown.text.splitlines()] == [
        "{", '"b": 1.10,', '"a": 12345678901234567890123,', '"a": "é"', "}",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("escaped", "shown"),
    [
        (r"Z\u00fcrich", "Zürich"),
        (r"\u65E5\u672c", "日本"),
        (r"\ud83d\ude00", "\N{GRINNING FACE}"),
        # A backslash and five letters.
        (r"\\u00fc", r"\\u00fc"),
        # Half of a pair, controls, marks for the direction of text, and ASCII.
        (r"\ud83d \u0000 \u202e \u0022 \n", r"\ud83d \u0000 \u202e \u0022 \n"),
    ],
)
def test_json_shows_letters_for_their_escapes(escaped: str, shown: str) -> None:
    data = f'{{"a": "{escaped}"}}'.encode()
    text = shown_bytes(data, LISTED_BYTES).text
    assert text == f'{{"a": "{shown}"}}'
    assert json.loads(text) == json.loads(data)


@pytest.mark.parametrize("data", [b"{nearly}", b"[1,", b'{"a":1} x', b"plain", b"12"])
def test_other_text_stays_as_it_is(data: bytes) -> None:
    assert shown_bytes(data, 100)[:5] == ("text", data.decode(), len(data), False, "")


def test_bytes_are_dumped() -> None:
    shown = shown_bytes(bytes([0, 255, 65]), 100)
    assert shown.kind == "bytes"
    assert shown.text.split() == ["0000", "00", "ff", "41", "..A"]


def test_a_large_value_is_cut_between_characters() -> None:
    shown = shown_bytes("ü".encode() * 5000, LISTED_BYTES + 1)
    assert (shown.kind, shown.size, shown.is_cut) == ("text", 10_000, True)
    assert shown.text == "ü" * (LISTED_BYTES // 2)


@pytest.mark.parametrize("data", [b"[" * 60_000, b"[" * 500 + b"]" * 500, b'{"a":' * 1000 + b"1"])
def test_deep_json_is_not_indented(data: bytes) -> None:
    shown = shown_bytes(data, 100_000)
    assert shown.kind == "text"
    assert len(shown.text) == len(data)


def test_headers_are_bounded() -> None:
    headers = [("n" * 1000, b"v" * 1000)] * 1000
    record = ConsumerRecord("t", 0, 0, 0, 0, None, None, headers)
    found = RecordView(Decoders(), NO_MASKS).decode(record).shown().headers
    assert len(found) == 50
    assert len(found[0][0]) <= 256
    assert found[0][1].is_cut
