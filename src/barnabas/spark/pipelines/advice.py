"""Words the ways out of a refused change: first one that costs nothing, then a reset and its cost.

A reset is never the only advice, and never the first: it deletes rows of a table, or sends rows to
a sink that has them already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.spark.pipelines.definition import FlowDefinition


def or_reset(safe: str, flow: FlowDefinition, flows: Sequence[FlowDefinition]) -> str:
    """Return a way out without cost, followed by the reset of the flow's target and its cost.

    Args:
        safe: what to do without a reset.
        flow: a flow into the dataset or sink.
        flows: all flows of the pipeline.
    """
    return f"{safe}. Or start anew: {reset_command(flow)}, which {_cost(flow, flows)}"


def reset_command(flow: FlowDefinition) -> str:
    """Return the command that shows what a reset of a flow's target costs."""
    return f"barnabas pipeline reset {short(flow.target)}"


def _cost(flow: FlowDefinition, flows: Sequence[FlowDefinition]) -> str:
    name = short(flow.target)
    if flow.sink is not None:
        return (
            f"writes all rows to {name} again; the rows that {name} has stay, and are there twice"
        )
    sinks = sorted({
        short(each.target)
        for each in flows
        if each.sink is not None and _reads(each, flow.target)
    })  # fmt: skip
    twice = f"; {' and '.join(sinks)} gets all its rows a second time" if sinks else ""
    return (
        f"empties {name} and fills it from what its sources have today: rows whose records were "
        f"deleted are lost{twice}"
    )


def _reads(flow: FlowDefinition, table: str) -> bool:
    return any(
        source.format == "table" and short(source.options["name"]) == short(table)
        for source in flow.sources
    )


def short(name: str) -> str:
    """Return a dataset's own name, without catalog, database and backticks."""
    return name.replace("`", "").rsplit(".", 1)[-1]
