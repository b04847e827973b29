"""Filters by expressions: what they find, where they are wrong, and that they are bounded."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from barnabas.console.messages.decoded import decode_plain
from barnabas.console.messages.record_view import DecodedRecord
from barnabas.console.search.expressions import (
    EXAMPLES,
    EXPRESSION_CHARACTERS_MAX,
    FAILED,
    NO,
    YES,
    ExpressionError,
    ExpressionFilter,
    FilterTooSlowError,
)
from unit.console.search.records import evaluated

VALUE = {
    "amount": 67.18,
    "customer": {"name": "Ann", "id": 7},
    "items": [{"price": 20.0}, {"price": 150.0}],
    "error": "a timeout",
    "none": None,
}


def record(value: Any = VALUE, timestamp: int = 1_900_000_000_000) -> DecodedRecord:
    data = value if value is None or isinstance(value, bytes) else msgspec.json.encode(value)
    headers = [("trace", decode_plain(b"42"))]
    return DecodedRecord(
        "orders", 3, 17, timestamp, decode_plain(b"Order-1"), decode_plain(data), headers
    )


def test_all_parts_of_a_record_are_variables() -> None:
    conditions = (
        "value.amount > 67.0", "value.customer.id == 7", 'value.customer["name"] == "Ann"',
        "value.items.exists(each, each.price > 100.0)", "value.none == null",
        "!has(value.missing)", 'key.matches("(?i)^order-[0-9]$")', 'headers.trace == "42"',
        "partition == 3", "offset in [16, 17]", "time_ms == 1900000000000",
        'time > timestamp("2026-01-31T12:00:00Z")', "size > 20", 'topic.startsWith("ord")',
    )  # fmt: skip
    assert evaluated(" && ".join(conditions), record()) == ([YES], "")


@pytest.mark.parametrize("example", [text for text, _ in EXAMPLES])
def test_the_examples_of_the_page_are_valid(example: str) -> None:
    assert evaluated(example, record()).results in ([YES], [NO])


def test_records_for_which_an_expression_fails_do_not_match_and_the_first_reason_is_kept() -> None:
    records = [record({"a": 1}), record({"b": 1}), record({"a": 2}), record(None), record(b"\xff")]
    found = evaluated("value.a == 1", *records)
    assert found.results == [YES, FAILED, NO, FAILED, FAILED]
    assert found.failure == 'there is no member "a"'


def test_values_that_cel_cannot_hold_fail_alone() -> None:
    large, far, plain = record(b'{"a": 1e3, "b": 99999999999999999999}'), 10**18, record({"a": 1})
    assert evaluated("value.a == 1", large, record({"a": 1}, far), plain).results == [
        FAILED, FAILED, YES,
    ]  # fmt: skip


def test_a_result_that_is_neither_true_nor_false_fails() -> None:
    assert evaluated("value.amount", record()) == ([FAILED], "the result is 67.18")


@pytest.mark.parametrize(
    ("expression", "line", "column", "reason"),
    [
        ("value.amount > ", 1, 16, "the filter ends too early"),
        ("value.a == 1 &&\nnope == 1", 2, 1, "there is no variable and no function nope"),
        ('partition == "x"', 1, 11, "== does not work with a whole number and a text"),
        ("size + 1", 0, 0, "the result must be true or false, and it is a whole number"),
        ("(" * 300 + "1" + ")" * 300, 0, 0, "recursion limit"),
        ("true" + " " * EXPRESSION_CHARACTERS_MAX, 0, 0, "more than 2000 characters"),
    ],
)
def test_a_malformed_expression_has_a_place_and_a_reason(
    expression: str, line: int, column: int, reason: str
) -> None:
    with pytest.raises(ExpressionError) as found:
        evaluated(expression)
    assert (found.value.line, found.value.column) == (line, column)
    assert reason in found.value.reason


def test_nested_loops_fail_at_a_number_of_steps() -> None:
    loops = "value.all(a, " * 6 + "true" + ")" * 6
    found = evaluated(loops, record(list(range(20))))
    assert found.results == [FAILED]
    assert "budget exceeded" in found.failure


def test_an_expression_that_takes_too_long_is_stopped() -> None:
    text = {"texts": list(range(9000)), "text": "a" * 65_000}
    with pytest.raises(FilterTooSlowError, match="1 records took more than"):
        asyncio.run(stopped('value.texts.all(each, !value.text.matches("(a|b)*c"))', record(text)))


async def stopped(expression: str, found: DecodedRecord) -> None:
    """Evaluate with nearly no time; the child has time to start."""
    evaluating = ExpressionFilter(60.0)
    await evaluating.check("true")
    evaluating.limit_s = 0.01
    try:
        await evaluating.evaluate(expression, [found])
    finally:
        evaluating.close()


def test_an_expression_that_needs_too_much_memory_is_stopped() -> None:
    text = {"texts": list(range(9000)), "text": "a" * 250_000}
    with pytest.raises(FilterTooSlowError, match="too much memory"):
        evaluated("value.texts.map(each, value.text + value.text).size() > 0", record(text))
