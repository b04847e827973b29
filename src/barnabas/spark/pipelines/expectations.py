"""Conditions that rows of a pipeline must meet; Spark 4.2 has none of its own.

    rows = expect(rows, "has a key", f.col("key").isNotNull(), otherwise="drop")

Counts come from `DataFrame.observe`, whose metrics Spark reports with each finished batch of a
stream. Materialized views are no streams: their conditions hold, but their rows are not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Otherwise = Literal["drop", "keep", "fail"]

_PREFIX = "expectation"
_SEPARATOR = "/"


def expect(
    frame: DataFrame, name: str, condition: Column, otherwise: Otherwise = "drop"
) -> DataFrame:
    """Return the rows of a frame that meet a condition, and count the others.

    A condition that is null counts as not met.

    Args:
        frame: the rows.
        name: what is expected, for the progress and errors. Unique in a flow.
        condition: true for a good row.
        otherwise: what happens to other rows. "drop" removes them, "keep" only counts them, and
            "fail" fails the flow, before the batch is written.

    Raises:
        ValueError: `otherwise` has another value, or the name is empty or contains "/".
    """
    from pyspark.sql import functions as f

    if otherwise not in get_args(Otherwise):
        raise ValueError(f"otherwise={otherwise!r}; expected one of {get_args(Otherwise)}")
    if not name or _SEPARATOR in name:
        raise ValueError(f"{name!r} is no name of an expectation: it is empty or contains '/'")
    is_met = f.coalesce(condition, f.lit(False))
    counted = frame.observe(
        _SEPARATOR.join((_PREFIX, otherwise, name)),
        f.count(f.lit(1)).alias("rows"),
        f.count(f.when(~is_met, 1)).alias("failed"),
    )
    if otherwise == "keep":
        return counted
    if otherwise == "drop":
        return counted.where(is_met)
    problem = f.raise_error(f.lit(f"a row does not meet the expectation {name!r}"))
    return counted.where(f.when(is_met, f.lit(True)).otherwise(problem.cast("boolean")))


def expectation_counts(observed: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the counts of the expectations in a progress of Spark, by name.

    Args:
        observed: `observedMetrics` of the progress.
    """
    found = {}
    for key, metrics in observed.items():
        parts = key.split(_SEPARATOR, 2)
        if len(parts) == 3 and parts[0] == _PREFIX:
            found[parts[2]] = {
                "otherwise": parts[1],
                "rows": int(metrics["rows"]),
                "failed": int(metrics["failed"]),
            }
    return found
