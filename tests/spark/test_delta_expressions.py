"""Spark and the sink for Delta tables agree which rows violate an expression of a constraint."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from barnabas.spark.delta.columns import arrow_schema, row_columns
from barnabas.spark.delta.constraints import translated, violations

pytestmark = pytest.mark.spark

ROWS = 60
EXPRESSIONS = 60
TYPES = (
    "v bigint, i int, f double, s string, d date, b boolean, m decimal(10,2),"
    " p struct<x:int,Y:string>"
)
NUMBERS = ("v", "i", "f", "m", "p.x", "P.X", "`v`", "-v", "v + i", "v * 2", "i - 1", "abs(v)",
           "length(s)", "coalesce(i, 0)", "v % 3", "f * 2",
           "case when b then v else 1 end")  # fmt: skip
VALUES = ("0", "1", "-2", "1.5", "3", ".5", "1e1", "null")
TEXTS = ("s", "S", "p.y", "lower(s)", "upper(p.Y)", "trim(s)")
WORDS = ("'a'", '"b"', "'B '", "''", "'grün'")
DAYS = ("date '2013-01-02'", "'2013-01-01'")
COMPARISONS = ("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>")


def atom(chance: random.Random) -> str:
    pick = chance.choice
    match chance.randrange(8):
        case 0:
            return f"{pick(NUMBERS)} {pick(COMPARISONS)} {pick(VALUES)}"
        case 1:
            return f"{pick(NUMBERS)} {pick(COMPARISONS)} {pick(NUMBERS)}"
        case 2:
            return f"{pick(TEXTS)} {pick(COMPARISONS)} {pick(WORDS)}"
        case 3:
            return f"{pick(NUMBERS)} {pick(('', 'not '))}in ({pick(VALUES)}, {pick(VALUES)})"
        case 4:
            return f"{pick(NUMBERS)} {pick(('', 'not '))}between {pick(VALUES)} and 2"
        case 5:
            return f"{pick(('s', 'v', 'd', 'b', 'p', 'p.x'))} is {pick(('', 'not '))}null"
        case 6:
            return f"{pick(TEXTS)} {pick(('', 'not '))}like {pick(('_', '%b%', 'a%'))!r}"
        case _:
            return f"d {pick(COMPARISONS)} {pick(DAYS)}"


def expression(chance: random.Random, depth: int = 2) -> str:
    if depth == 0 or chance.random() < 0.3:
        return chance.choice(("b", "not b", *(atom(chance) for _ in range(6))))
    left, right = expression(chance, depth - 1), expression(chance, depth - 1)
    return chance.choice((f"({left}) and ({right})", f"({left}) or {right}", f"not ({left})"))


def row_texts(chance: random.Random) -> list[str]:
    """Rows as lines of SQL."""
    choices = (
        ("null", "0L", "1L", "-2L", "3L"),
        ("null", "0", "1", "2", "-7"),
        ("null", "0.0D", "1.5D", "-2.25D", "double('NaN')", "double('Infinity')"),
        ("null", "'a'", "'b'", "'B '", "''", "'grün'", "' ab'"),
        ("null", "date'2013-01-01'", "date'2013-01-02'"),
        ("null", "true", "false"),
        ("null", "0.00", "1.50", "-2.00", "3.25"),
        ("null", "named_struct('x', 1, 'Y', 'a')", "named_struct('x', null, 'Y', 'B ')"),
    )
    return [f"({', '.join(chance.choice(each) for each in choices)})" for _ in range(ROWS)]


def is_supported(text: str, columns: list[dict[str, object]]) -> bool:
    try:
        translated("it", text, columns)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("seed", [1, 2, pytest.param(3, marks=pytest.mark.nightly)])
def test_random_expressions_are_violated_by_the_rows_that_spark_finds(
    spark: SparkSession, seed: int
) -> None:
    chance = random.Random(seed)
    names = ", ".join(each.split(" ")[0] for each in TYPES.split(", "))
    values = ", ".join(row_texts(chance))
    frame = spark.sql(f"select * from values {values} as t({names})")
    frame = spark.createDataFrame(frame.collect(), TYPES).coalesce(1)
    columns = row_columns(frame.schema)
    batch = pa.RecordBatch.from_pylist(
        [each.asDict(recursive=True) for each in frame.collect()], arrow_schema(columns)
    )
    made = (expression(chance) for _ in range(4 * EXPRESSIONS))
    texts = [each for each in made if is_supported(each, columns)][:EXPRESSIONS]
    counts = [f"count_if(({each}) is not true)" for each in texts]
    found = frame.selectExpr(*counts).first()
    assert found is not None
    ours = [violations(batch, translated("it", each, columns))[0] for each in texts]
    assert dict(zip(texts, ours, strict=True)) == dict(zip(texts, found, strict=True))
    assert any(each not in {0, ROWS} for each in ours), "the expressions tell rows apart"
