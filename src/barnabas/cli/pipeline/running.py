"""Runs a pipeline in a process of its own, and shows its events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.output import EXIT_FAILED, problem
from barnabas.cli.common.printable import echo
from barnabas.cli.common.termination import exit_status, termination_as_interrupt
from barnabas.cli.pipeline.run_display import RunTotals, rows_text, shown
from barnabas.spark.pipelines.definition import short_key

if TYPE_CHECKING:
    from barnabas.spark.pipelines.project import Project
    from barnabas.spark.pipelines.runs import RunRequest


def run_request(project: Project, request: RunRequest, *, as_json: bool) -> int:
    """Run a pipeline until it ends or is interrupted, and return the exit status."""
    from barnabas.spark.pipelines.runs import StartedRun, log_path

    totals = RunTotals()
    result = None
    try:
        with (
            termination_as_interrupt(),
            StartedRun(project, request) as started,
            shown(totals, as_json=as_json) as show,
        ):
            for event in started.events():
                totals.take(event)
                show(event)
                if event["event"] == "ended":
                    result = event["result"]
            started.wait()
    except KeyboardInterrupt as interrupt:
        return exit_status(interrupt)
    if result == "completed":
        if not as_json:
            echo(f"{'checked' if request.check_only else 'completed'}{_summary(totals)}")
        return 0
    if result is None:
        problem("the process of the run ended without a result")
    if not as_json and result != "refused":
        echo(f"Spark's log: {log_path(project)}", err=True)
    return EXIT_FAILED


def _summary(totals: RunTotals) -> str:
    counts = [
        f"{short_key(flow)} {rows_text(each.rows_read, each.rows_written)}"
        for flow, each in totals.flows.items()
        if each.batches
    ]
    return f": {', '.join(counts)}" if counts else ""
