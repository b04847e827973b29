"""Compares the rows of flows with the tables and the state that earlier runs made.

Measured with PySpark 4.2.1: if a table is gone, a run makes an empty one, and its flow goes on from
the checkpoint, so the table has new rows only. A column with another type ends the run with
CANNOT_MERGE_INCOMPATIBLE_DATA_TYPE, without the names of table and column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.spark.pipelines.advice import or_reset, short
from barnabas.spark.pipelines.changes import Change

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from barnabas.spark.pipelines.checkpoints import Checkpoint
    from barnabas.spark.pipelines.definition import FlowDefinition

# Nested types: an array's element type and the like can be merged if their parts can.
_PARTS = ("elementType", "keyType", "valueType")


@dataclass(frozen=True, slots=True)
class StoredTable:
    """What is there of a flow's target."""

    # Why rows of earlier runs are gone; None if they are there, or if that is unknown.
    missing: str | None = None
    # Spark's type of each column; empty if it is unknown.
    columns: Mapping[str, Any] | None = None


def find_table_changes(
    flow: FlowDefinition,
    flows: Sequence[FlowDefinition],
    checkpoint: Checkpoint,
    stored: StoredTable,
    columns: Mapping[str, Any],
) -> Iterator[Change]:
    """Yield what does not fit of the target of a flow that has run.

    Args:
        flow: the flow.
        flows: all flows of the pipeline.
        checkpoint: the flow's checkpoint.
        stored: its target.
        columns: Spark's types of the flow's rows by column; empty if they are unknown.
    """
    if stored.missing is not None and checkpoint.committed_batch >= 0:
        yield Change(
            flow.flow,
            flow.target,
            f"{stored.missing}, but its checkpoint is at batch {checkpoint.committed_batch}. A new "
            f"{'target' if flow.sink else 'table'} would lack all rows of the batches up to there",
            or_reset(f"bring {short(flow.target)} back, from a backup for example", flow, flows),
        )
        return
    for name, type_ in columns.items():
        before = (stored.columns or {}).get(name)
        if before is not None and not _is_mergeable(before, type_):
            now, then = type_.simpleString(), before.simpleString()
            new = f"cast {name} to {then}, or give the new values a column of their own"
            yield Change(
                flow.flow,
                flow.target,
                f"its column {name} is {now} now, and {then} in {short(flow.target)}",
                or_reset(new, flow, flows),
            )


def find_state_changes(
    flow: FlowDefinition, flows: Sequence[FlowDefinition], before: FlowDefinition
) -> Iterator[Change]:
    """Yield columns of other types than those with which the state of a flow was made.

    Only flows into sinks need this: the columns of other flows are compared with their tables.
    """
    if not flow.operators or flow.sink is None:
        return
    for name, type_ in flow.columns.items():
        then = before.columns.get(name, type_)
        if then != type_:
            yield Change(
                flow.flow,
                flow.target,
                f"its column {name} is {type_} now, and was {then} when its state was made",
                or_reset(f"cast {name} to {then}", flow, flows),
            )


def _is_mergeable(before: Any, now: Any) -> bool:
    """Return whether Spark writes a column of a type to a column of a table, as it merges them."""
    if before.typeName() != now.typeName():
        return False
    if before.typeName() == "struct":
        types = {field.name: field.dataType for field in now.fields}
        return all(
            _is_mergeable(field.dataType, types[field.name])
            for field in before.fields
            if field.name in types
        )
    if before.typeName() == "decimal":
        return bool(before.scale == now.scale)
    parts = [part for part in _PARTS if hasattr(before, part)]
    if parts:
        return all(_is_mergeable(getattr(before, part), getattr(now, part)) for part in parts)
    return bool(before.simpleString() == now.simpleString())
