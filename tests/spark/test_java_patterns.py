"""Patterns of topics: the translation matches what Java itself matches, in random patterns."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from barnabas.settings.java_pattern import compile_java_pattern
from barnabas.settings.pattern import PatternError

pytestmark = pytest.mark.spark

NAMES = ["a", "ab", "A", "aB", "t-1", "x.y", "_x", "topic9", "0", "bbb", "E", "a]"]
PIECES = [
    *"abBz1.-_^$|()*+?{}[]", "[^", "(?:", "(?=", "(?!", "(?<n>", "(?i:", "(?i)", "(?-i:", "(?>",
    "{2}", "{1,}", "&&", "a-z", "A-C", r"\d", r"\W", r"\p{Digit}", r"\p{Lu}", r"\P{Alpha}", r"\pL",
    r"\z", r"\Z", r"\A", r"\b", r"\Qa.\E", r"\Q]\E", r"\.", r"\x41", r"\u0062", r"\1", r"\k<n>",
    "[a-z&&[^b]]", "[a-c[x-z]]", r"\p{IsAlphabetic}", r"\p{Punct}", "*+", "??", r"\012", r"\]",
]  # fmt: skip
PATTERNS_MAX = 150


def test_random_patterns_match_as_in_java_or_are_refused(spark: SparkSession) -> None:
    chance = random.Random(4)
    java = spark._jvm.java.util.regex.Pattern
    compared = 0
    while compared < PATTERNS_MAX:
        text = "".join(chance.choices(PIECES, k=chance.randint(1, 7)))
        try:
            ours = compile_java_pattern(text)
        except PatternError:
            continue
        compared += 1
        # Java raises here if it does not take a pattern that we accept.
        theirs = java.compile(text)
        found = [name for name in NAMES if theirs.matcher(name).find()]
        assert [name for name in NAMES if ours.search(name)] == found, text
