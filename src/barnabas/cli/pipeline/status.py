"""`barnabas pipeline status`: where the flows are, read from their checkpoints."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.output import EXIT_FAILED, client_options, echo_json, warning
from barnabas.cli.common.printable import echo
from barnabas.cli.common.tables import echo_table, warn
from barnabas.cli.pipeline.projects import (
    moment,
    offline_option,
    project_option,
    reported,
    topic_bounds,
)
from barnabas.cli.pipeline.run_display import filled, lag_text
from barnabas.spark.pipelines.definition import short_key

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from barnabas.spark.pipelines.checkpoints import FlowStatus

EXAMPLES = """\b
Examples:
  barnabas pipeline status --project flights
  barnabas pipeline status --json --offline

\b
Reads the checkpoints, without Spark, and asks the brokers for the ends of the topics. These are the
brokers of the definitions, unless others are given.
"""


@click.command("status", epilog=EXAMPLES)
@project_option
@offline_option
@client_options
def status(
    directory: Path,
    offline: bool,
    bootstrap: str,
    properties: Sequence[str],
    as_json: bool,
) -> None:
    """Show where the flows of a pipeline are, and how far behind their topics.

    Exit status 1: records were deleted from a topic before the pipeline read them.
    """
    from barnabas.spark.pipelines.checkpoints import flow_statuses, read_checkpoints, read_notes
    from barnabas.spark.pipelines.project import load_project
    from barnabas.spark.pipelines.runs import is_running

    with reported():
        project = load_project(directory)
    checkpoints, notes = read_checkpoints(project), read_notes(project.notes)
    bounds = None if offline else topic_bounds(checkpoints, notes, bootstrap, properties)
    statuses = flow_statuses(checkpoints, notes, bounds)
    running = is_running(project.notes)
    if as_json:
        echo_json(
            {
                "pipeline": project.name,
                "running": running,
                "last_run": notes.last_run,
                "flows": [_status_json(each) for each in statuses],
            }
        )
    else:
        _echo_status(statuses, running=running, last_result=notes.last_run.get("result"))
    lost = [(each, tp, n) for each in statuses for tp, n in each.lost.items()]
    for each, tp, count in lost:
        warning(
            f"{short_key(each.checkpoint.key)}: {count} records of {tp} were deleted before they "
            "were read. The next run fails. With failOnDataLoss=false the source goes on without "
            "these records, and they are lost"
        )
    if lost:
        sys.exit(EXIT_FAILED)


def _echo_status(statuses: Sequence[FlowStatus], *, running: bool, last_result: str | None) -> None:
    rows = [
        (
            short_key(each.checkpoint.key),
            each.checkpoint.committed_batch if each.checkpoint.committed_batch >= 0 else None,
            each.progress.get("rows_written"),
            lag_text(each.lag_by_topic),
            moment(each.checkpoint.watermark_ms),
            each.state_rows,
            warn("unfinished batch") if each.has_unfinished_batch else "",
        )
        for each in statuses
    ]
    columns = ("flow", "batch", "rows written", "lag", "watermark", "state rows", "")
    # Scripts get all columns.
    echo_table(*(filled(columns, rows) if sys.stdout.isatty() else (columns, rows)))
    if running:
        echo("a run is going on", err=True)
    elif last_result is None:
        echo("this pipeline has not run yet: barnabas pipeline run", err=True)
    elif last_result != "completed":
        echo(f"the last run: {last_result}", err=True)


def _status_json(status: FlowStatus) -> dict[str, object]:
    checkpoint = status.checkpoint
    return {
        "target": checkpoint.target,
        "flow": checkpoint.flow,
        "committed_batch": checkpoint.committed_batch,
        "unfinished_batch": checkpoint.planned_batch if status.has_unfinished_batch else None,
        "partitions": [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "offset": offset,
                "lag": status.lag[tp],
                "lost": status.lost.get(tp, 0),
            }
            for tp, offset in sorted(checkpoint.topic_offsets.items())
        ],
        # Of the last batch, as the run reported it; null if it did not.
        "rows_read": status.progress.get("rows_read"),
        "rows_written": status.progress.get("rows_written"),
        "watermark": moment(checkpoint.watermark_ms),
        "operators": list(checkpoint.operators),
        "state_rows": status.state_rows,
        "expectations": status.progress.get("expectations", {}),
    }
