"""Lines of schemas, and the differences between two texts."""

from __future__ import annotations

import pytest

from barnabas.console.differences import Line, compare, schema_lines
from barnabas.serializers.schema import Schema, SchemaType


@pytest.mark.parametrize(
    ("text", "kind", "lines"),
    [
        ('{"a":1}', SchemaType.AVRO, ["{", '  "a": 1', "}"]),
        ('{"é":1}', SchemaType.JSON, ["{", '  "é": 1', "}"]),
        ("no json", SchemaType.AVRO, ["no json"]),
        ("syntax;\nmessage A {}", SchemaType.PROTOBUF, ["syntax;", "message A {}"]),
    ],
)
def test_json_is_indented_and_other_text_stays(
    text: str, kind: SchemaType, lines: list[str]
) -> None:
    assert schema_lines(Schema(text, kind)) == lines


def test_changes_have_marks_and_the_numbers_of_both_texts() -> None:
    assert compare(["a", "b", "c"], ["a", "x", "c", "d"]) == [
        Line("", 1, 1, "a"),
        Line("-", 2, None, "b"),
        Line("+", None, 2, "x"),
        Line("", 3, 3, "c"),
        Line("+", None, 4, "d"),
    ]


def test_equal_lines_far_from_a_change_are_left_out() -> None:
    old = [str(n) for n in range(20)]
    found = compare(old, [*old[:10], "new", *old[10:]])
    assert found is not None
    assert [(each.mark, each.text) for each in found] == [
        ("…", ""),
        *[("", str(n)) for n in (7, 8, 9)],
        ("+", "new"),
        *[("", str(n)) for n in (10, 11, 12)],
    ]
    assert compare(old, old) == []


def test_texts_that_are_too_long_are_not_compared() -> None:
    assert compare(["a"] * 5_001, []) is None
