"""The example of change data capture: events become the current rows of a Delta table, once.

Events have the form of those that Debezium sends; `tests/spark/test_change_data_capture.py` runs
the example with a real one.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from changes import NEW_KEY, OLD_KEY, UNAVAILABLE, TableChanges, fold
from check import differences_of_table
from delta_tables import Batch, _add_columns, apply_changes

Event = dict[str, Any]
ID = {"type": "int32", "field": "id"}
TEXT = {"type": "string", "optional": True, "field": "text"}
# A large value, which PostgreSQL does not log if it does not change.
LARGE = {"type": "string", "optional": True, "field": "large"}
SEATS = {"type": "int32", "default": 7, "field": "seats"}
COLUMNS = [ID, TEXT, LARGE]


def key_of(number: int) -> bytes:
    return json.dumps({"id": number}).encode()


def event(
    op: str,
    number: int | None,
    lsn: int,
    columns: list[Event] = COLUMNS,
    headers: dict[str, bytes] | None = None,
    **after: Any,
) -> Event:
    """A record as Debezium writes it."""
    payload = {
        "op": op,
        "source": {"ts_us": 1, "lsn": lsn},
        "after": None if op in "dt" else {"id": number, **after},
    }
    schema = {"fields": [{"field": "before"}, {"field": "after", "fields": columns}]}
    return {
        "key": None if number is None else key_of(number),
        "value": json.dumps({"schema": schema, "payload": payload}).encode(),
        "headers": [{"key": name, "value": value} for name, value in (headers or {}).items()],
    }


def deletion(number: int, lsn: int, headers: dict[str, bytes] | None = None) -> list[Event]:
    tombstone = {"key": key_of(number), "value": None, "headers": []}
    return [event("d", number, lsn, headers=headers), tombstone]


def key_change(old: int, new: int, lsn: int, **after: Any) -> list[Event]:
    return [
        *deletion(old, lsn, {NEW_KEY: key_of(new)}),
        event("c", new, lsn, headers={OLD_KEY: key_of(old)}, **after),
    ]


SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def folded(events: list[Event]) -> TableChanges:
    rows = [{"topic": "t", "offset": offset, **each} for offset, each in enumerate(events)]
    # Spark's shuffle does not keep the order.
    result = fold(pa.Table.from_pylist(rows[::-1], SCHEMA))
    return msgspec.json.decode(result["changes"][0].as_py(), type=TableChanges)


class Table:
    """A Delta table to which batches are applied."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.batches = 0

    def apply(self, *events: Event) -> bool:
        self.batches += 1
        return apply_changes(self.path, folded(list(events)), Batch("query", self.batches))

    def rows(self) -> dict[int, tuple[Any, ...]]:
        found = DeltaTable(self.path).to_pyarrow_table().drop_columns("_lsn")
        rows = [tuple(row.values()) for row in found.to_pylist()]
        assert len({row[0] for row in rows}) == len(rows)
        return {row[0]: row[1:] for row in rows}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "table")


def test_the_last_state_of_each_row_is_in_the_table(table: Table) -> None:
    table.apply(
        event("r", 1, 10, text="a", large="A"),
        event("r", 2, 10, text="b", large="B"),
        event("u", 1, 11, text="c", large=UNAVAILABLE),
        *deletion(2, 12),
        event("c", 3, 13, text=None, large="C"),
        *deletion(3, 14),
        event("c", 3, 15, text="d", large=None),
    )
    assert table.rows() == {1: ("c", "A"), 3: ("d", None)}


def test_a_large_value_that_did_not_change_stays_in_the_table(table: Table) -> None:
    table.apply(event("c", 1, 10, text="a", large="A"), event("c", 2, 10, text="b", large="B"))
    table.apply(
        event("u", 1, 11, text="changed", large=UNAVAILABLE),
        event("u", 2, 12, text="b", large="changed"),
        event("u", 2, 13, text=None, large=UNAVAILABLE),
    )
    assert table.rows() == {1: ("changed", "A"), 2: (None, "changed")}


def test_a_row_with_a_new_key_takes_its_large_value_along(table: Table) -> None:
    table.apply(event("c", 1, 10, text="a", large="A"))
    table.apply(
        *key_change(1, 2, 11, text="a", large=UNAVAILABLE),
        *key_change(2, 3, 12, text="b", large=UNAVAILABLE),
        # The old key has another row now.
        event("c", 1, 13, text="new", large="N"),
    )
    assert table.rows() == {1: ("new", "N"), 3: ("b", "A")}


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_batch_may_end_inside_a_change_of_a_key(table: Table, cut: int) -> None:
    events = [
        event("c", 1, 10, text="a", large="A"),
        *key_change(1, 2, 11, text="b", large=UNAVAILABLE),
    ]
    table.apply(*events[:cut])
    table.apply(*events[cut:])
    assert table.rows() == {2: ("b", "A")}


def test_truncate_removes_all_rows_before_it(table: Table) -> None:
    table.apply(event("c", 1, 10, text="a", large="A"), event("c", 2, 10, text="b", large="B"))
    table.apply(
        event("u", 1, 11, text="x", large=UNAVAILABLE),
        event("t", None, 12),
        event("c", 2, 13, text="again", large="C"),
    )
    assert table.rows() == {2: ("again", "C")}


def test_a_batch_may_have_nothing_but_truncate(table: Table) -> None:
    table.apply(event("c", 1, 10, text="a", large="A"))
    table.apply(event("t", None, 11))
    assert table.rows() == {}


def test_a_repeated_batch_changes_nothing(table: Table) -> None:
    table.apply(event("c", 1, 10, text="a", large="A"))
    version = DeltaTable(table.path).version()
    table.batches -= 1
    assert not table.apply(event("c", 1, 10, text="a", large="A"))
    assert DeltaTable(table.path).version() == version


def test_an_event_that_connect_repeats_does_not_undo_a_later_one(table: Table) -> None:
    table.apply(event("c", 1, 10, text="a", large="A"), event("u", 1, 12, text="c", large="C"))
    table.apply(event("u", 1, 11, text="b", large="B"))
    assert table.rows() == {1: ("c", "C")}


def new_column_events() -> list[Event]:
    return [
        # PostgreSQL added the column after this event, and gave the row the default.
        event("u", 1, 11, text="changed", large=UNAVAILABLE),
        event("c", 3, 12, text="c", large="C"),
        event("u", 2, 13, [*COLUMNS, SEATS], text="b", large=UNAVAILABLE, seats=9),
    ]


def test_a_new_column_has_its_default_in_rows_without_an_event(table: Table) -> None:
    table.apply(*(event("c", number, 10, text="a", large="A") for number in (1, 2, 4)))
    table.apply(*new_column_events())
    assert table.rows() == {
        1: ("changed", "A", 7), 2: ("b", "A", 9), 3: ("c", "C", 7), 4: ("a", "A", 7)
    }  # fmt: skip


def test_a_crash_after_a_new_column_does_not_lose_its_default(table: Table) -> None:
    table.apply(event("c", 1, 10, text="a", large="A"), event("c", 2, 10, text="a", large="A"))
    changes = folded(new_column_events())
    _add_columns(DeltaTable(table.path), changes, Batch("query", 2))
    table.apply(*new_column_events())
    assert table.rows() == {1: ("changed", "A", 7), 2: ("b", "A", 9), 3: ("c", "C", 7)}
    # A later batch leaves values alone.
    table.apply(event("u", 2, 14, [*COLUMNS, SEATS], text="b", large=UNAVAILABLE, seats=10))
    assert table.rows()[1] == ("changed", "A", 7)


def test_a_column_of_another_type_is_refused(table: Table) -> None:
    table.apply(event("c", 1, 10, text="a", large="A"))
    changed = [ID, {**TEXT, "type": "int64"}, LARGE]
    with pytest.raises(ValueError, match="column text is"):
        table.apply(event("u", 1, 11, changed, text=5, large=UNAVAILABLE))


@pytest.mark.parametrize("seed", range(8))
def test_random_changes_in_random_batches_give_the_rows_of_the_source(
    table: Table, seed: int
) -> None:
    chance = random.Random(seed)
    rows: dict[int, tuple[str, str]] = {}
    events = [event("c", 0, 1, text="0", large="0")]
    rows[0] = ("0", "0")
    for lsn in range(2, 80):
        number, other = chance.randrange(8), chance.randrange(8)
        text, large = str(lsn), f"large {lsn}"
        if number not in rows:
            events.append(event("c", number, lsn, text=text, large=large))
            rows[number] = (text, large)
        elif other not in rows:
            events += key_change(number, other, lsn, text=text, large=UNAVAILABLE)
            rows[other] = (text, rows.pop(number)[1])
        elif chance.random() < 0.4:
            events += deletion(number, lsn)
            del rows[number]
        elif chance.random() < 0.5:
            events.append(event("u", number, lsn, text=text, large=UNAVAILABLE))
            rows[number] = (text, rows[number][1])
        else:
            events.append(event("u", number, lsn, text=text, large=large))
            rows[number] = (text, large)
    while events:
        size = chance.randrange(1, 25)
        batch, events = events[:size], events[size:]
        if any(each["value"] is not None for each in batch):
            table.apply(*batch)
            if chance.random() < 0.3:
                table.batches -= 1
                table.apply(*batch)
    assert table.rows() == rows


DELTA = pa.table({"id": pa.array([1, 2], pa.int32()), "text": ["a", None]})


def test_the_check_accepts_equal_tables() -> None:
    assert differences_of_table("t", ["id"], "id,text\n2,\\N\n1,a\n", DELTA) == []


@pytest.mark.parametrize(
    ("csv", "problem"),
    [
        ("id,text\n1,a\n2,\\N\n3,c\n", "1 rows missing"),
        ("id,text\n1,a\n", "1 rows unexpected"),
        ("id,text\n1,b\n2,\\N\n", "text 'a' instead of 'b'"),
        ('id,text\n1,a\n2,""\n', "text None instead of ''"),
        ("id,text,seats\n1,a,7\n2,\\N,7\n", "no column seats"),
    ],
)
def test_the_check_finds_a_difference(csv: str, problem: str) -> None:
    [found] = differences_of_table("t", ["id"], csv, DELTA)
    assert problem in found


def test_the_check_finds_a_key_that_is_there_twice() -> None:
    twice = pa.concat_tables([DELTA, DELTA.slice(0, 1)])
    [found] = differences_of_table("t", ["id"], "id,text\n1,a\n2,\\N\n", twice)
    assert "more than once" in found
