"""Regular expressions of users: the same matches as Python's, in bounded work."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from barnabas.settings.pattern import (
    PATTERN_CHARACTERS_MAX,
    POSITIONS_MAX,
    TEXT_CHARACTERS_MAX,
    Pattern,
    PatternError,
)

_ATOMS = st.sampled_from(["a", "b", ".", r"\d", r"\W", "[ab]", "[^a]", "[a-c1]", r"\.", "-"])
_QUANTIFIERS = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,}", "{0,2}", "*?"])


def _patterns() -> st.SearchStrategy[str]:
    atoms = st.builds(lambda atom, times: atom + times, _ATOMS, _QUANTIFIERS)
    return st.recursive(
        atoms,
        lambda inner: st.one_of(
            st.builds(lambda one, two: one + two, inner, inner),
            st.builds(lambda one, two: f"{one}|{two}", inner, inner),
            st.builds(lambda one, times: f"(?:{one}){times}", inner, _QUANTIFIERS),
            st.builds(lambda one, times: f"({one}){times}", inner, _QUANTIFIERS),
        ),
        max_leaves=5,
    )


@given(_patterns(), st.text("ab1.-c", max_size=6))
def test_a_pattern_matches_as_in_python(expression: str, text: str) -> None:
    try:
        pattern = Pattern(expression)
    except PatternError:
        # Nested repetitions stand for more positions than are allowed.
        return
    expected = re.compile(expression, re.ASCII).fullmatch(text) is not None
    assert pattern.matches(text) == expected


@pytest.mark.parametrize(
    ("expression", "text", "expected"),
    [
        ("kafka-.*-prod", "kafka-orders-prod", True),
        ("^a|b$", "b", True),
        ("^a|b$", "ab", False),
        ("(?i)Java.*", "apache-kafka-JAVA", False),
        ("(?i)apache-KAFKA-[j]ava", "Apache-kafka-JAVA", True),
        ("(?i)[a-c]+", "AbC", True),
        (r"127\.0\.0\.1", "127.0.0.1", True),
        (r"127\.0\.0\.1", "127x0x0x1", False),
        (r"[\w.-]+", "a.b-c_1", True),
        ("[]a]+", "]a", True),
        ("", "", True),
        ("", "a", False),
        ("a{0}b", "b", True),
    ],
)
def test_usual_patterns_match_as_in_python(expression: str, text: str, expected: bool) -> None:
    assert Pattern(expression).matches(text) is expected


@pytest.mark.parametrize(
    "expression",
    [
        "(a",
        "a)",
        "*a",
        "a**",
        "a{2",
        "a{3,2}",
        "a{99999999999}",
        "a{4294967296}",
        "[a",
        "[z-a]",
        "a\\",
        r"(a)\1",
        r"\bword",
        "(?=a)a",
        "(?<name>a)",
        "a$b",
        "(^a)",
        "(" * 100 + ")" * 100,
        "a" * (PATTERN_CHARACTERS_MAX + 1),
        "((a{20}){20}){20}",
        "[a[b]]",
    ],
)
def test_unsupported_patterns_are_refused_with_a_message(expression: str) -> None:
    with pytest.raises(PatternError):
        Pattern(expression)


def test_nested_repetitions_of_an_empty_group_finish_quickly() -> None:
    nested = "()"
    for _ in range(40):
        nested = f"({nested}){{999}}"
    assert Pattern(nested).matches("")


def test_a_pattern_that_backtracks_takes_one_step_per_character() -> None:
    pattern = Pattern("(a+)+b")
    steps = 0
    after = pattern._after

    class Counted(Pattern):
        __slots__ = ()

        def _after(self, positions: int) -> int:
            nonlocal steps
            steps += 1
            return after(positions)

    assert not Counted("(a+)+b").matches("a" * TEXT_CHARACTERS_MAX)
    assert steps == TEXT_CHARACTERS_MAX


def test_the_work_of_a_match_is_bounded() -> None:
    widest = Pattern(f".{{{POSITIONS_MAX}}}")
    assert widest.matches("x" * POSITIONS_MAX)
    assert not Pattern(".*").matches("x" * (TEXT_CHARACTERS_MAX + 1))


def test_patterns_with_the_same_text_are_equal() -> None:
    assert Pattern("a.*") == Pattern("a.*")
    assert Pattern("a.*") != Pattern("a.+")
    assert len({Pattern("a"), Pattern("a")}) == 1
