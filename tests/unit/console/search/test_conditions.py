"""Searches compare with what is displayed, and with the bytes of records."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.console.messages.decoded import PARSED_BYTES_MAX, PIECE_BYTES
from barnabas.console.messages.masking import MaskRule
from barnabas.console.search.expressions import ExpressionFilter
from unit.console.search.records import conditions, decoded

COMPACT = b'{"amount":67.180,"name":"Zo\\u00eb","nested":{"a":[1,2]}}'


@pytest.mark.parametrize(
    "text",
    [
        # As the page displays it, as the record has it, and with its characters.
        '"amount": 67.180', '"amount":67.180', '"a": [1, 2]', "Zo\\u00eb", "Zoë", '"a":[1,2]',
    ],
)  # fmt: skip
def test_json_is_found_by_its_displayed_text_and_by_its_bytes(text: str) -> None:
    record = decoded(COMPACT)
    assert conditions(value=text).fits_texts(record)
    assert conditions(text=text).fits_texts(record)
    assert not conditions(key=text).fits_texts(record)


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ({"key": "Key"}, True),
        ({"key": "key"}, False),
        ({"key": "kEY", "case": "ignore"}, True),
        ({"value": "ZOË", "case": "ignore"}, True),
        ({"text": "TRACE", "case": "ignore"}, False),
        ({"text": "Id-7"}, True),
        ({"header": "trace"}, True),
        ({"header": "trace=Id"}, True),
        ({"header": "trace=other"}, False),
        ({"header": "other"}, False),
        ({"key": "Key", "value": "absent"}, False),
        ({"text": "ff 00"}, True),
    ],
)
def test_all_given_conditions_must_be_fulfilled(fields: dict[str, str], fits: bool) -> None:
    headers = [("trace", b"Id-7"), ("bytes", b"\xff\x00")]
    record = decoded(COMPACT, key=b"Key", headers=headers)
    assert conditions(**fields).fits_texts(record) is fits


def test_a_masked_part_is_not_found_by_its_original_text() -> None:
    rules = (MaskRule("*", "value", ("secret",)), MaskRule("*", "header", ("token",)))
    headers = [("token", b"hidden too")]
    record = decoded(b'{"secret":"hidden","open":"shown"}', *rules, headers=headers)
    for case in ("", "ignore"):
        assert conditions(text="shown", case=case).fits_texts(record)
        assert not conditions(text="hidden", case=case).fits_texts(record)
        assert not conditions(header="token=hidden", case=case).fits_texts(record)


def test_an_expression_selects_among_the_records_that_have_the_texts() -> None:
    async def selected() -> Any:
        evaluating = ExpressionFilter(60.0)
        wanted = conditions(text="x", filter="value.n > 1")
        records = [decoded(b'{"n":1,"x":0}'), decoded(b'{"n":2,"x":0}'), decoded(b'{"x":0}')]
        try:
            found = [each for each in [*records, decoded(b"{}")] if wanted.fits_texts(each)]
            return records, await wanted.select(found, evaluating)
        finally:
            evaluating.close()

    records, selection = asyncio.run(selected())
    assert selection == ([records[1]], 1, 'there is no member "n"')


def test_conditions_are_false_if_every_record_fulfills_them() -> None:
    assert not conditions(case="ignore")
    assert conditions(filter="true")


@pytest.mark.parametrize("place", [0, PIECE_BYTES - 3, PIECE_BYTES * 3 - 1, 2 * PARSED_BYTES_MAX])
def test_a_text_in_a_large_value_is_found_wherever_it_is(place: int) -> None:
    text = "x" * place + "Nädel" + "y" * (2 * PARSED_BYTES_MAX)
    for value in (text.encode(), b"\xff" + text.encode()):
        record = decoded(value)
        assert conditions(value="Nädel").fits_texts(record)
        assert not conditions(value="nädel").fits_texts(record)
        assert not conditions(value="Nadel").fits_texts(record)
    assert conditions(value="nÄDEL", case="ignore").fits_texts(decoded(text.encode()))
    # Bytes are found by their hexadecimal digits too.
    assert conditions(value="4e c3 a4").fits_texts(decoded(b"\xff" + text.encode()))
