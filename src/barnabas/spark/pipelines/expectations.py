"""Conditions that rows of a pipeline must meet; Spark 4.2 has none of its own.

    rows = expect(rows, "has a key", f.col("key").isNotNull(), otherwise="drop")

Another flow of the pipeline, with its own checkpoint, writes quarantined rows. It reads the same
sources as the function that calls `expect`.

Counts come from `DataFrame.observe`, whose metrics Spark reports with each finished batch of a
stream. Materialized views are no streams: their conditions hold, but their rows are not counted.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import Column, DataFrame

Otherwise = Literal["drop", "keep", "fail", "quarantine"]

_PREFIX = "expectation"
_SEPARATOR = "/"
# The column of quarantined rows with the name of the expectation.
REASON = "quarantine_reason"


@dataclass(frozen=True, slots=True)
class QuarantineFlow:
    """A flow that writes the rows which do not meet an expectation."""

    name: str
    # A table or sink of the pipeline.
    target: str
    rows: DataFrame


_collected: ContextVar[list[QuarantineFlow] | None] = ContextVar("quarantine_flows", default=None)


@contextmanager
def collect_quarantine_flows() -> Iterator[list[QuarantineFlow]]:
    """Yield a list, which gets the flows of the calls of `expect` in this context.

    Spark does not let the function of a flow define another flow, so the caller defines them later.
    """
    flows: list[QuarantineFlow] = []
    token = _collected.set(flows)
    try:
        yield flows
    finally:
        _collected.reset(token)


def expect(
    frame: DataFrame,
    name: str,
    condition: Column,
    otherwise: Otherwise = "drop",
    *,
    quarantine: str = "",
) -> DataFrame:
    """Return the rows of a frame that meet a condition, and count the others.

    A condition that is null counts as not met.

    Args:
        frame: the rows.
        name: what is expected, for the progress and errors. Unique in a flow.
        condition: true for a good row.
        otherwise: what happens to other rows. "drop" removes them, "keep" only counts them, and
            "fail" fails the flow, before the batch is written. "quarantine" removes them, and
            another flow of the pipeline writes them to `quarantine`.
        quarantine: a streaming table or sink of the pipeline for the other rows, which have the
            column `quarantine_reason` in addition.

    Raises:
        ValueError: `otherwise` has another value, the name is empty or contains "/", or
            `quarantine` is given without otherwise="quarantine" or the other way round. Or rows are
            quarantined outside of a pipeline that `barnabas pipeline run` runs.
    """
    from pyspark.sql import functions as f

    if otherwise not in get_args(Otherwise):
        raise ValueError(f"otherwise={otherwise!r}; expected one of {get_args(Otherwise)}")
    if not name or _SEPARATOR in name:
        raise ValueError(f"{name!r} is no name of an expectation: it is empty or contains '/'")
    if (otherwise == "quarantine") is not bool(quarantine):
        raise ValueError(
            f"expectation {name!r}: otherwise='quarantine' needs quarantine=, the name of a table "
            f"or sink, and other values of `otherwise` do not use it"
        )
    flows = _collected.get()
    if quarantine and flows is None:
        raise ValueError(
            f"expectation {name!r}: otherwise='quarantine' is for the functions of a pipeline that "
            f"`barnabas pipeline run` runs"
        )
    is_met = f.coalesce(condition, f.lit(False))
    if flows is not None and quarantine:
        flow = re.sub(r"\W+", "_", f"{quarantine.rsplit('.', 1)[-1]}_{name}")
        rows = frame.where(~is_met).select("*", f.lit(name).alias(REASON))
        flows.append(QuarantineFlow(flow, quarantine, rows))
    counted = frame.observe(
        _SEPARATOR.join((_PREFIX, otherwise, name)),
        f.count(f.lit(1)).alias("rows"),
        f.count(f.when(~is_met, 1)).alias("failed"),
    )
    if otherwise == "keep":
        return counted
    if otherwise in ("drop", "quarantine"):
        return counted.where(is_met)
    problem = f.raise_error(f.lit(f"a row does not meet the expectation {name!r}"))
    return counted.where(f.when(is_met, f.lit(True)).otherwise(problem.cast("boolean")))


def expectation_counts(observed: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
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
