"""Conditions of the option deleteWhen: each is true for the rows that SQL would choose."""

from __future__ import annotations

import datetime as dt

import duckdb
import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from hypothesis import given, strategies as st

from barnabas.spark.errors import OptionError
from barnabas.spark.tables.merge_options import parse_condition

ROWS = pa.table(
    {
        "op": ["d", "u", None, "it's", "D"],
        "n": pa.array([1, -2, None, 4, 5], pa.int32()),
        "price": pa.array([0.5, None, 1.0, 2.5, -1.0]),
        "gone": pa.array([True, False, None, True, False]),
        "day": pa.array([dt.date(2026, 1, day) for day in range(1, 6)]),
        "two words": ["a", "b", "c", "d", "e"],
    }
)


def chosen(text: str) -> list[int]:
    """The numbers of the rows that meet a condition."""
    numbered = ROWS.append_column("number", pa.array(range(ROWS.num_rows)))
    condition = parse_condition(text, ROWS.schema)
    found: list[int] = pads.dataset(numbered).filter(condition).to_table()["number"].to_pylist()
    return found


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("op = 'd'", [0]),
        ("op='it''s'", [3]),
        ("op <> 'd'", [1, 3, 4]),
        ("op != 'd' and n > 4", [4]),
        ("op IN ('d', 'D')", [0, 4]),
        ("op NOT IN ('d', 'D')", [1, 3]),
        ("NOT (op = 'd' OR n >= 4)", [1]),
        ("op IS NULL", [2]),
        ("op is not null and not gone", [1, 4]),
        ("gone", [0, 3]),
        ("gone = false", [1, 4]),
        ("n = -2 OR price < 0.75 AND n = 1", [0, 1]),
        ("price >= 1", [2, 3]),
        ("day < '2026-01-03'", [0, 1]),
        ("`two words` = 'b'", [1]),
    ],
)
def test_a_condition_chooses_rows(text: str, rows: list[int]) -> None:
    assert chosen(text) == rows


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "a column is missing before 'the end'"),
        ("op", "a comparison is missing after op, which is no boolean column"),
        ("op = d", "a value is missing before 'd'"),
        ("op = NULL", "a value is missing before 'null'"),
        ("op = 'd", '"\'d" is unknown'),
        ("op == 'd'", "a value is missing before '='"),
        ("kind = 'd'", "the rows have no column kind; they have op, n"),
        ("(op = 'd'", "') is missing before 'the end'"),
        ("op = 'd' gone", "'gone' is not expected"),
        ("op NOT 'd'", "IN is missing after NOT"),
        ("n = 'd'", "'d' is a text, and its column has the type int32"),
        ("n = 99999999999", "99999999999 does not fit the type int32"),
        ("day = 'soon'", "soon does not fit the type date32"),
        ("lower(op) = 'd'", "the rows have no column lower"),
        ("op = 'd'; DROP", "'; DROP' is unknown"),
    ],
)
def test_other_text_is_refused_by_name(text: str, problem: str) -> None:
    with pytest.raises(OptionError) as error:
        parse_condition(text, ROWS.schema)
    assert problem.replace("') is", ") is") in str(error.value)


PREDICATES = st.sampled_from(
    ["op = 'd'", "op <> 'u'", "op IN ('d', 'u')", "op NOT IN ('d')", "n > 1", "n IS NULL",
     "n IS NOT NULL", "gone", "price <= 1", "day >= '2026-01-04'"]
)  # fmt: skip
CONDITIONS = st.recursive(
    PREDICATES,
    lambda inner: (
        inner.map(lambda text: f"NOT ({text})")
        | st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(" ".join)
        | st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
            lambda parts: f"({' '.join(parts)})"
        )
    ),
    max_leaves=6,
)


@given(CONDITIONS)
def test_random_conditions_choose_the_rows_that_sql_chooses(text: str) -> None:
    rows = ROWS.append_column("number", pa.array(range(ROWS.num_rows)))
    connection = duckdb.connect()
    connection.register("rows", rows)
    found = connection.execute(f"SELECT number FROM rows WHERE {text} ORDER BY 1").fetchall()
    assert chosen(text) == [each[0] for each in found]
