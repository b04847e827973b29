"""Errors of filters are in plain words, without the names of the parser."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from barnabas.console.search.expressions import ExpressionError, _Job, evaluate
from unit.console.search.records import evaluated

_JARGON = ("<EOF>", "Syntax error", "extraneous", "mismatched", "viable", "token", "overload")


@pytest.mark.parametrize(
    ("expression", "reason", "column"),
    [
        ("value.n >> 1", "> is not expected here", 10),
        ("value.n >", "the filter ends too early: a value is missing", 10),
        ("(value.n == 1", ") is missing at the end", 14),
        ("value.n = 1", "one = has no meaning: write == to compare", 9),
        ("value.n == 'a", "the text has no quotation mark at its end", 12),
        ("key == 1 and true", "and is not expected here: write && or ||", 10),
        ("nosuch == 1", "there is no variable and no function nosuch", 1),
        ("value.startsWith(1)", "startsWith does not work with any value and a whole number", 17),
        ("headers == 1", "== does not work with an object and a whole number", 9),
        ("has(value)", "has() asks for a member", 5),
        ("#", "# has no meaning in a filter", 1),
    ],
)
def test_a_reason_says_what_is_wrong_and_where(expression: str, reason: str, column: int) -> None:
    with pytest.raises(ExpressionError) as found:
        evaluated(expression)
    assert found.value.reason.startswith(reason)
    assert (found.value.line, found.value.column) == (1, column)
    evaluated(found.value.example)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([*"()[]{}.,?:!=<>&|+-*/%'\"#", "a", "1", " ", "value", "has"])))
def test_no_reason_has_words_of_the_parser(parts: list[str]) -> None:
    try:
        evaluate(_Job("".join(parts), []))
    except ExpressionError as error:
        reason = error.reason
    else:
        reason = ""
    assert not [word for word in _JARGON if word in reason], reason
