"""`barnabas pipeline reset`: start datasets anew. Without --execute, only show what is lost."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.output import client_options, echo_json
from barnabas.cli.common.printable import echo
from barnabas.cli.pipeline.projects import offline_option, project_option, reported, topic_bounds
from barnabas.cli.pipeline.running import run_request

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from barnabas.spark.pipelines.project import Project
    from barnabas.spark.pipelines.reset import ResetPlan

EXAMPLES = """\b
Examples:
  barnabas pipeline reset records
  barnabas pipeline reset records hours --project flights --execute
  barnabas pipeline reset out --execute

\b
Without --execute, nothing is changed. A table is emptied, and Spark fills it again at once, from
what its sources have today. Of a sink the checkpoint is removed: the next run writes all rows to it
again.
"""


@click.command("reset", epilog=EXAMPLES)
@click.argument("datasets", nargs=-1, required=True, metavar="DATASET...")
@project_option
@offline_option
@click.option("--execute", is_flag=True, help="Reset the datasets.")
@click.option(
    "--master", default="local[*]", show_default=True, metavar="URL", help="Spark's master."
)
@client_options
def reset_datasets(
    datasets: Sequence[str],
    directory: Path,
    offline: bool,
    execute: bool,
    master: str,
    bootstrap: str,
    properties: Sequence[str],
    as_json: bool,
) -> None:
    """Start tables or sinks anew. Without --execute, only show what is lost."""
    from barnabas.spark.pipelines.checkpoints import read_checkpoints, read_notes
    from barnabas.spark.pipelines.project import load_project
    from barnabas.spark.pipelines.reset import PipelineState, plan_reset

    with reported():
        project = load_project(directory)
        checkpoints, notes = read_checkpoints(project), read_notes(project.notes)
        bounds = None if offline else topic_bounds(checkpoints, notes, bootstrap, properties)
        plan = plan_reset(
            PipelineState(project, checkpoints, notes, bounds), list(dict.fromkeys(datasets))
        )
    _show(plan, done=execute, as_json=as_json)
    if execute:
        with reported():
            _execute(project, plan, master, as_json=as_json)


def _execute(project: Project, plan: ResetPlan, master: str, *, as_json: bool) -> None:
    from barnabas.spark.pipelines.reset import remove_sink_checkpoints
    from barnabas.spark.pipelines.runs import RunLock, RunRequest

    if plan.sinks:
        lock = RunLock(
            project.notes, lambda: echo("waiting for the end of an earlier run", err=True)
        ).acquire()
        remove_sink_checkpoints(plan)
        lock.release()
    if plan.tables:
        request = RunRequest(spec=str(project.spec), master=master, full_refresh=plan.tables)
        sys.exit(run_request(project, request, as_json=as_json))


def _show(plan: ResetPlan, *, done: bool, as_json: bool) -> None:
    if as_json:
        echo_json(
            {
                "executed": done,
                "datasets": [
                    {
                        "dataset": reset.name,
                        "kind": "sink" if reset.is_sink else "table",
                        "bytes": reset.size,
                        "flows": [each.flow for each in reset.checkpoints],
                        "lost": list(reset.lost),
                        "repeated": list(reset.repeated),
                    }
                    for reset in plan.resets
                ],
            }
        )
        return
    for reset in plan.resets:
        kind = "sink" if reset.is_sink else f"table, {reset.size:,} bytes"
        echo(f"{reset.name} ({kind})")
        for checkpoint in reset.checkpoints:
            offsets = ", ".join(
                f"{tp} {offset}" for tp, offset in sorted(checkpoint.topic_offsets.items())
            )
            echo(f"  forgets: batch {checkpoint.committed_batch}{offsets and f', {offsets}'}")
        for sentence in reset.lost:
            echo(f"  lost: {sentence}")
        for sentence in reset.repeated:
            echo(f"  repeated: {sentence}")
    if not done:
        echo("nothing was changed; use --execute to reset", err=True)
