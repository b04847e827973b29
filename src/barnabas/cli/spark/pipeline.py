"""`barnabas pipeline`: create, run, inspect and reset pipelines of Spark."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.named_topics import complete_topics
from barnabas.cli.common.output import (
    ClientOptions,
    bootstrap_option,
    client_options,
    echo_json,
    json_option,
    key_values,
)
from barnabas.cli.common.printable import echo
from barnabas.cli.common.profiles import select
from barnabas.cli.common.units import duration_ms
from barnabas.cli.spark.pipeline_runs import (
    offline_option,
    project_option,
    reported,
    run_request,
    status,
    topic_bounds,
)
from barnabas.server.configs.endpoint import parse_address
from barnabas.spark.pipelines.project import load_project

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.spark.pipelines.project import Project
    from barnabas.spark.pipelines.reset import ResetPlan

EXAMPLES = """\b
Examples:
  barnabas pipeline init flights --topic departures
  barnabas pipeline run --project flights
  barnabas pipeline status --project flights
  barnabas pipeline reset records --project flights              show what is lost
  barnabas pipeline reset records --project flights --execute

\b
A pipeline is a project of Spark Declarative Pipelines. Install Barnabas with its extra spark.
"""
INIT_EXAMPLES = """\b
Examples:
  barnabas pipeline init flights --topic departures --bootstrap 127.0.0.1:9092
  barnabas pipeline init /srv/pipelines/orders --topic orders --output orders-checked
"""
RUN_EXAMPLES = """\b
Examples:
  barnabas pipeline run
  barnabas pipeline run --check
  barnabas pipeline run --every 1m --master local[2]
  barnabas pipeline run --every 1m --metrics 127.0.0.1:9309
  barnabas pipeline run --refresh records --json
  barnabas pipeline run --conf spark.driver.memory=4g

\b
A run ends when it has read what is there. A run that was killed loses nothing: the next one goes
on where the checkpoints are. Definitions that do not fit them are refused, with the way out.
"""


@click.group(epilog=EXAMPLES)
def pipeline() -> None:
    """Create, run, inspect and reset declarative pipelines of Spark."""


pipeline.add_command(status)


@pipeline.command("init", epilog=INIT_EXAMPLES)
@click.argument("directory", metavar="NAME", type=click.Path(path_type=Path))
@click.option(
    "-t",
    "--topic",
    required=True,
    metavar="TOPIC",
    shell_complete=complete_topics,
    help="The topic to read.",
)
@click.option(
    "--output", metavar="TOPIC", help="The topic to write.  [default: the topic's name and -out]"
)
@bootstrap_option("Brokers that the pipeline connects to first.")
@json_option()
def init(
    directory: Path, topic: str, output: str | None, bootstrap: str | None, as_json: bool
) -> None:
    """Write a project in a new directory NAME. It runs as it is; no broker is asked."""
    from barnabas.spark.pipelines.new_project import NewProject, create_project

    brokers = select(bootstrap, (), None, None).bootstrap
    with reported():
        written = create_project(directory, NewProject(topic, brokers, output or f"{topic}-out"))
    if as_json:
        echo_json({"project": str(directory.resolve()), "files": list(map(str, written))})
        return
    for path in written:
        echo(f"wrote {directory / path.relative_to(directory.resolve())}")


@pipeline.command("run", epilog=RUN_EXAMPLES)
@project_option
@click.option(
    "--refresh", multiple=True, metavar="DATASET", help="Run only this dataset; may be repeated."
)
@click.option("--check", "check_only", is_flag=True, help="Check the definitions, run nothing.")
@click.option(
    "--every", metavar="30s|5m", help="Run again after this pause, with definitions read anew."
)
@click.option(
    "--accept",
    "accepted",
    multiple=True,
    metavar="FLOW",
    help="Run this flow although its change was refused; may be repeated.",
)
@click.option(
    "--master", default="local[*]", show_default=True, metavar="URL", help="Spark's master."
)
@click.option(
    "--conf", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of Spark's start."
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Address for /metrics (Prometheus) of the flows while the run goes on. Default: none.",
)
@json_option("Print the events as lines of JSON.")
def run(
    directory: Path,
    refresh: Sequence[str],
    check_only: bool,
    every: str | None,
    accepted: Sequence[str],
    master: str,
    settings: Sequence[str],
    metrics: str | None,
    as_json: bool,
) -> None:
    """Run a pipeline, and show rows, lag, watermark and state of its flows.

    Exit status 1: a flow failed, or a change was refused.
    """
    from barnabas.spark.pipelines.run_request import RunRequest

    with reported():
        project = load_project(directory)
    request = RunRequest(
        spec=str(project.spec),
        master=master,
        settings=key_values(settings, "--conf"),
        refresh=tuple(refresh),
        check_only=check_only,
        accepted=tuple(accepted),
        every_s=_seconds(every),
        metrics=_address(metrics),
    )
    sys.exit(run_request(project, request, as_json=as_json))


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    length = duration_ms(text)
    if length is None:
        raise click.UsageError(f"--every {text}: write 90s, 15m or 2h")
    return length / 1000


def _address(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    address = parse_address(text)
    if address is None:
        raise click.UsageError(f"--metrics {text}: write HOST:PORT, such as 127.0.0.1:9309")
    return address


RESET_EXAMPLES = """\b
Examples:
  barnabas pipeline reset records
  barnabas pipeline reset records hours --project flights --execute
  barnabas pipeline reset out --execute

\b
Without --execute, nothing is changed. A table is emptied, and Spark fills it again at once, from
what its sources have today. Of a sink the checkpoint is removed: the next run writes all rows to it
again.
"""


@pipeline.command("reset", epilog=RESET_EXAMPLES)
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
    options: ClientOptions,
) -> None:
    """Start tables or sinks anew. Without --execute, only show what is lost."""
    from barnabas.spark.pipelines.checkpoints import read_checkpoints
    from barnabas.spark.pipelines.notes import read_notes
    from barnabas.spark.pipelines.reset import Found, plan_reset

    with reported():
        project = load_project(directory)
        checkpoints, notes = read_checkpoints(project), read_notes(project.notes)
        bounds = None if offline else topic_bounds(checkpoints, notes, options)
        plan = plan_reset(Found(project, checkpoints, notes, bounds), list(dict.fromkeys(datasets)))
    _show(plan, done=execute, as_json=options.as_json)
    if execute:
        with reported():
            _execute(project, plan, master, as_json=options.as_json)


def _execute(project: Project, plan: ResetPlan, master: str, *, as_json: bool) -> None:
    from barnabas.spark.pipelines.reset import remove_sink_checkpoints
    from barnabas.spark.pipelines.run_lock import RunLock
    from barnabas.spark.pipelines.run_request import RunRequest

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
