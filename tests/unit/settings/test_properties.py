"""Java's .properties text."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from barnabas.settings.properties import PropertiesError, format_properties, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("  a:b", {"a": "b"}),
        ("a b c", {"a": "b c"}),
        ("a", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("# a=b\n! c=d\ne=f", {"e": "f"}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\n# no comment", {"a": "b# no comment"}),
        ("a=\\u00e9\\t\\q", {"a": "é\tq"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=b\\", {"a": "b"}),
        ("\n \n", {}),
    ],
)
def test_properties_are_parsed_as_in_java(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_a_malformed_unicode_escape_is_an_error() -> None:
    with pytest.raises(PropertiesError):
        parse_properties("a=\\u12g4")


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_formatted_properties_are_parsed_to_the_same_values(values: dict[str, str]) -> None:
    text = {
        key.encode("utf-16", "replace").decode("utf-16"): value for key, value in values.items()
    }
    assert parse_properties(format_properties(text)) == text
