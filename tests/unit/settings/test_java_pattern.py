"""Patterns of Java's syntax: what they match, and what is refused by name.

`tests/spark/test_java_patterns.py` compares them with Java itself.
"""

from __future__ import annotations

import pytest

from barnabas.settings.java_pattern import compile_java_pattern
from barnabas.settings.pattern import PatternError

NAMES = ["orders", "orders-1", "Orders", "a.b", "x_y", "9"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("order", ["orders", "orders-1"]),
        ("^order", ["orders", "orders-1"]),
        ("(?i)ORDER", ["orders", "orders-1", "Orders"]),
        ("(?i:o)rders$", ["orders", "Orders"]),
        (r"\p{Digit}", ["orders-1", "9"]),
        (r"\A\P{Alpha}\z", ["9"]),
        (r"\pL\.\p{Lower}", ["a.b"]),
        (r"\p{javaUpperCase}", ["Orders"]),
        ("(?<n>r)ders", ["orders", "orders-1", "Orders"]),
        (r"(?<n>[a-z])_(?!\k<n>)", ["x_y"]),
        ("[a-z&&[^a-y]]", []),
        ("[a-z&&[^a-w]]", ["x_y"]),
        ("[a-c[_]]", ["a.b", "x_y"]),
        (r"\Qa.b\E", ["a.b"]),
        (r"\x39|\u005f|\0137", ["x_y", "9"]),
        ("o++rders", ["orders", "orders-1"]),
        ("(?=orders)(?!orders-).*", ["orders"]),
        ("[[:digit:]]", ["orders", "orders-1", "Orders"]),
        ("", NAMES),
    ],
)
def test_a_pattern_is_found_as_in_java(text: str, found: list[str]) -> None:
    pattern = compile_java_pattern(text)
    assert [name for name in NAMES if pattern.search(name)] == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (r"\p{IsGreek}", r"\\p{IsGreek} is not supported"),
        (r"\p{InGreek}", r"\\p{InGreek}"),
        (r"\R", r"\\R is not supported"),
        (r"a\G", r"\\G"),
        (r"\h", r"\\h"),
        (r"\N{DIGIT ONE}", r"\\N"),
        (r"\cA", r"\\c"),
        ("(?P<n>a)", r"\(\?P begins no group"),
        ("(?x) a", "flag x is not supported"),
        ("(?U)a", "flag U"),
        ("a(?i)b", r"use \(\?i:...\) elsewhere"),
        (r"(?i)\p{Lower}", "where case is ignored"),
        ("[^a[b]]", "differs between versions of Java"),
        ("[^a&&b]", "differs between versions of Java"),
        ("[a&&]", "empty side"),
        ("[z-a]", "reversed"),
        ("[a", "not closed"),
        ("(a", "not closed"),
        ("a)", "no opening"),
        ("a{,3}", "no repetition"),
        ("{", "no repetition"),
        ("*a", "nothing to repeat"),
        (r"\1", "invalid group reference"),
        ("(?<=a+)b", "fixed-width"),
        ("\\", "ends with a backslash"),
        ("(" * 5000, "more than 4096 characters"),
    ],
)
def test_what_has_no_exact_translation_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(PatternError, match=words):
        compile_java_pattern(text)
