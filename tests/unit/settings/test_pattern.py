"""Regular expressions of users: the same matches as Python's, in bounded work."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from barnabas.settings.pattern import (
    CAPTURES_MAX,
    CHARACTERS_MAX,
    DEPTH_MAX,
    SIZE_MAX,
    Pattern,
    PatternError,
    PatternTooLargeError,
    compile_with_captures,
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
    expected = re.compile(expression, re.ASCII).fullmatch(text) is not None
    assert Pattern(expression).matches(text) == expected


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
    ["(a", "a)", "*a", "a**", "a{3,2}", "a{2}{3,1}", "a{1001}", "[a", "[z-a]", "a\\", r"(a)\1",
     "(?=a)a", r"\pX", "\ud800"],
)  # fmt: skip
def test_malformed_and_unsupported_patterns_are_refused(expression: str) -> None:
    with pytest.raises(PatternError):
        Pattern(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "." * (CHARACTERS_MAX + 1),
        "(" * (DEPTH_MAX + 1) + ")" * (DEPTH_MAX + 1),
        "(" * 16_000 + ")" * 16_000,
        "()" * 2_000 + "a" * 200,
        "((a{20}){20}){20}",
        "(?:a{1000}){5}",
        r"\pL" * 30,
        r"\pL{30}",
        r"\p{Greek}{30}",
        r"[\pL\PN]" * 15,
        r"\x{e9}{1000}" * 5,
        r"(?:\Q((({\E){1000}",
        r"(?:\Q[\Ea{500}){9}",
        "(?:[]a(]b{500}){9}",
        "(?:[^]a(]b{500}){9}",
        "(?:[[:alpha:](]b{500}){9}",
        r"(?:[\](]b{500}){9}",
        "(a?){0,1000}" * 3,
        "(" * 50 + "a" + "{2})" * 50,
    ],
)
def test_a_costly_pattern_is_refused_before_it_is_compiled(expression: str) -> None:
    # RE2's own errors, which it raises while it compiles, are not of this class.
    with pytest.raises(PatternTooLargeError):
        Pattern(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "|".join(f"topic-{number:04}" for number in range(300)),
        "(?i)[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}",
        "[a-zA-Z0-9._-]{1,249}",
        r"(\pL|\pN)+",
        "a" * SIZE_MAX,
        "(" * DEPTH_MAX + ")" * DEPTH_MAX,
        "(?:a{1000}){0}" * 3,
    ],
)
def test_usual_patterns_are_within_the_limits(expression: str) -> None:
    assert Pattern(expression).text == expression


def test_a_small_pattern_matches_a_long_text() -> None:
    assert Pattern("(a|b)*").matches("ab" * 16_000)


def test_the_work_of_a_match_is_bounded() -> None:
    costly = Pattern(r"(\W*){0,1000}")
    assert costly.matches("-" * 500)
    assert not costly.matches("-" * 32_000)


def test_a_text_without_special_characters_may_have_any_length() -> None:
    text = "a_1-" * CHARACTERS_MAX
    assert Pattern(text).matches(text)
    assert not Pattern(text).matches(f"{text}a")
    assert not Pattern(text).matches(text[1:])


def test_clients_patterns_have_no_captures() -> None:
    assert Pattern("(a)(b)")._fullmatch("ab").groups() == ()


def test_captures_are_for_operators_and_limited() -> None:
    assert compile_with_captures("(a)(b)").fullmatch("ab").groups() == ("a", "b")
    assert compile_with_captures("(?!a)(b)").fullmatch("b").groups() == ("b",)
    with pytest.raises(PatternTooLargeError):
        compile_with_captures("()" * (CAPTURES_MAX + 1))
    with pytest.raises(PatternError):
        compile_with_captures("(?!a")


@pytest.mark.parametrize("expression", ["[a[b]]", "[a&&b]"])
def test_sets_within_sets_are_noticed(expression: str) -> None:
    assert Pattern(expression).has_nested_sets
    assert not Pattern(r"[a\[b&[:alpha:]]").has_nested_sets


def test_patterns_with_the_same_text_are_equal() -> None:
    assert Pattern("a.*") == Pattern("a.*")
    assert Pattern("a.*") != Pattern("a.+")
    assert len({Pattern("a"), Pattern("a")}) == 1
