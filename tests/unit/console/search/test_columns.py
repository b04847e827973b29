"""Columns of a list of messages, and paths into their JSON."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, strategies as st

from barnabas.console.forms import FormError
from barnabas.console.search.columns import (
    DEFAULT,
    PLAIN,
    Cell,
    Order,
    Suggestions,
    parse_columns,
    row_of,
)
from unit.console.search.records import decoded

VALUE = {
    "customer": {"id": 7, "name": "Zoë"},
    "items": [{"sku": "a"}, {"sku": "b"}],
    "a.b": {'q"': True},
    "none": None,
    "half": 0.5,
}


def cell(path: str) -> Cell:
    headers = [("trace id", b'{"n": 1}'), ("bytes", b"\xff\x00")]
    record = decoded(msgspec.json.encode(VALUE), key=b'{"k": [1]}', headers=headers)
    [column] = parse_columns(path)
    return row_of(record, [column]).cells[path]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("value.customer.id", Cell("number", "7")),
        ("value.customer.name", Cell("text", "Zoë")),
        ("value.customer", Cell("json", '{"id": 7, "name": "Zoë"}')),
        ("value.items[0].sku", Cell("text", "a")),
        ("value.items[-1].sku", Cell("text", "b")),
        ("value.items[2].sku", Cell("missing", "–")),
        ('value["a.b"]["q\\""]', Cell("json", "true")),
        ("value.none", Cell("null", "null")),
        ("value.none.more", Cell("missing", "–")),
        ("value.half", Cell("number", "0.5")),
        ("key.k[0]", Cell("number", "1")),
        ('headers["trace id"].n', Cell("number", "1")),
        ("headers.bytes", Cell("text", "ff 00")),
        ("headers.absent", Cell("missing", "–")),
    ],
)
def test_a_path_shows_a_part_of_json(path: str, expected: Cell) -> None:
    assert cell(path) == expected


def test_a_long_cell_is_cut() -> None:
    [column] = parse_columns("value.a")
    found = row_of(decoded(msgspec.json.encode({"a": "x" * 10_000})), [column]).cells["value.a"]
    assert found == Cell("text", "x" * 500, is_cut=True)


def test_columns_stand_with_commas_between_them_and_each_counts_once() -> None:
    columns = parse_columns('time, value["x, y"].z,size,,time')
    assert [each.name for each in columns] == ["time", 'value["x, y"].z', "size"]
    assert [each.name for each in parse_columns(DEFAULT)] == ["time", "key", "value"]
    assert [each.root for each in parse_columns(",".join(PLAIN))] == list(PLAIN)


@pytest.mark.parametrize(
    "text",
    ["nothing", "time.a", "value..a", "value.a]", "value[x]", 'value["a', "Value.a", "headers[0]",
     "value.a b"],
)  # fmt: skip
def test_a_malformed_column_is_refused(text: str) -> None:
    with pytest.raises(FormError):
        parse_columns(f"time,{text}")


def test_the_number_of_columns_is_bounded() -> None:
    with pytest.raises(FormError, match="at most 20"):
        parse_columns(",".join(f"value.a{n}" for n in range(21)))


NAMES = st.text(st.characters(codec="utf-8"), max_size=12)
OBJECTS = st.recursive(
    st.none() | st.integers(0, 9) | NAMES, lambda inner: st.dictionaries(NAMES, inner, max_size=4)
)


@given(st.dictionaries(NAMES, OBJECTS, max_size=4))
def test_each_suggested_path_is_a_column_with_its_value(value: dict[str, object]) -> None:
    record = decoded(msgspec.json.encode(value))
    suggestions = Suggestions()
    suggestions.add(record)
    for name in suggestions.names:
        [column] = parse_columns(name)
        assert column.name == name
        assert column.cell(record).kind != "missing"


@given(st.text(max_size=60) | st.text('value.key[]"0-,\\ ', max_size=30))
def test_any_text_is_columns_or_is_refused(text: str) -> None:
    try:
        columns = parse_columns(text)
    except FormError:
        return
    row_of(decoded(b'{"key":{"value":[0]}}'), columns)
    assert parse_columns(",".join(each.name for each in columns)) == columns


def sorted_offsets(sort: str, *values: bytes | None) -> list[int]:
    columns = parse_columns("offset,size,value,value.n")
    rows = [
        row_of(decoded(value, offset=offset, partition=-offset % 2), columns)
        for offset, value in enumerate(values)
    ]
    return [row.message.offset for row in Order.of(sort).sort(rows, columns)]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("", [0, 1, 2, 3, 4, 5]),
        ("gone", [0, 1, 2, 3, 4, 5]),
        ("-offset", [5, 4, 3, 2, 1, 0]),
        ("place", [0, 2, 4, 1, 3, 5]),
        # Numbers by their size, then texts, then messages without the member.
        ("value.n", [2, 0, 1, 3, 4, 5]),
        ("-value.n", [3, 1, 0, 2, 4, 5]),
        # Without a value, a message is the last one in both directions.
        ("value", [3, 2, 1, 0, 4, 5]),
        ("-value", [4, 0, 1, 2, 3, 5]),
        ("size", [5, 4, 0, 2, 1, 3]),
    ],
)
def test_found_messages_are_sorted_by_a_column(sort: str, expected: list[int]) -> None:
    values = (b'{"n": 9}', b'{"n":  10}', b'{"n":-1}', b'{"n":"text of n"}', b"{}", None)
    assert sorted_offsets(sort, *values) == expected


def test_a_header_sorts_up_then_down_then_in_the_order_of_the_search() -> None:
    texts = [""]
    for _ in range(3):
        texts.append(Order.of(texts[-1]).after("size"))
    assert texts == ["", "size", "-size", ""]
    assert [Order.of(each).aria("size") for each in texts] == ["", "ascending", "descending", ""]
    assert Order.of("-size").after("key") == "key"
