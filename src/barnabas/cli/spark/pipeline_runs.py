"""Runs of pipelines: the process of a run, the display of its events, and the status of its flows.

A terminal shows a live table, other output a line for each event. The status is read from the
checkpoints of the flows.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.common.output import (
    EXIT_FAILED,
    ClientOptions,
    client_options,
    connected,
    echo_json,
    fail,
    problem,
    warning,
)
from barnabas.cli.common.printable import echo, printable_lines
from barnabas.cli.common.profiles import DEFAULT_BOOTSTRAP
from barnabas.cli.common.tables import (
    bad,
    console,
    dim,
    echo_table,
    good,
    header_option,
    table,
    warn,
)
from barnabas.cli.common.terminal import exit_status, termination_as_interrupt
from barnabas.cli.common.units import utc_text
from barnabas.client.errors import UnknownTopicError
from barnabas.spark.pipelines.checkpoints import TopicBounds, flow_statuses, noted_brokers
from barnabas.spark.pipelines.definition import short_key
from barnabas.spark.pipelines.project import ProjectError, load_project

project_option = click.option(
    "-p",
    "--project",
    "directory",
    type=click.Path(path_type=Path),
    default=Path(),
    metavar="DIR",
    help="The project's directory, or its specification.  [default: the current directory]",
)
offline_option = click.option(
    "--offline", is_flag=True, help="Do not ask brokers; the lag is unknown."
)


@contextmanager
def reported() -> Iterator[None]:
    """Print errors of a project, and exit."""
    try:
        yield
    except ProjectError as error:
        fail(str(error))


def project_of(directory: str) -> Project:
    """Read the project of a directory.

    Raises:
        ProjectError: there is no project, or it is wrong.
    """
    return load_project(Path(directory))


def moment(milliseconds: int) -> str | None:
    """Return a time as text; None for 0, which stands for no watermark."""
    if milliseconds <= 0:
        return None
    return utc_text(milliseconds, "seconds")


def topic_bounds(
    checkpoints: Sequence[Checkpoint], notes: Notes, options: ClientOptions
) -> TopicBounds | None:
    """Ask the brokers for first and end offsets of all partitions in the checkpoints.

    Without brokers of the user, those of the definitions are asked.
    """
    if not any(each.topic_offsets for each in checkpoints):
        return None
    if options.bootstrap == DEFAULT_BOOTSTRAP:
        options = options._replace(bootstrap=noted_brokers(notes) or DEFAULT_BOOTSTRAP)
    with connected(options) as client:
        return listed_bounds(client, checkpoints)


def listed_bounds(client: Client, checkpoints: Sequence[Checkpoint]) -> TopicBounds:
    """Return first and end offsets of all partitions in the checkpoints that exist."""
    partitions = sorted({tp for each in checkpoints for tp in each.topic_offsets})
    there = _existing(client, partitions)
    starts, ends = (
        client.list_offsets(dict.fromkeys(there, spec)) for spec in ("earliest", "latest")
    )
    return TopicBounds(
        {tp: each.offset for tp, each in starts.items()},
        {tp: each.offset for tp, each in ends.items()},
    )


def _existing(client: Client, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions that exist: a topic may have been deleted since."""
    found = []
    for topic in sorted({tp.topic for tp in partitions}):
        try:
            described = client.describe_topics([topic])[topic]
        except (UnknownTopicError, KeyError):
            continue
        found += [
            tp for tp in partitions if tp.topic == topic and tp.partition in described.partitions
        ]
    return found


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.spark.pipelines.checkpoints import Checkpoint, FlowStatus, Notes
    from barnabas.spark.pipelines.project import Project
    from barnabas.spark.pipelines.runs import RunRequest

    Show = Callable[[Mapping[str, Any]], None]

_STYLES: dict[str, Callable[[object], object]] = {
    "completed": good,
    "failed": bad,
    "skipped": bad,
    "running": warn,
}
_COLUMNS = (
    "flow",
    "state",
    "batches",
    "read",
    "written",
    "lag",
    "watermark",
    "state rows",
    "unmet",
)
# States of flows that were not asked for.
_HIDDEN_STATES = ("excluded", "queued", "planning", "idle")


@dataclass(slots=True)
class FlowTotals:
    """The sums of a run's events about one flow."""

    state: str = "queued"
    batches: int = 0
    rows_read: int = 0
    # None if Spark does not count the written rows of the flow.
    rows_written: int | None = 0
    # The last progress; empty before the first batch.
    progress: Mapping[str, Any] = field(default_factory=dict)
    # By expectation: rows of this run that did not meet it.
    failed: dict[str, int] = field(default_factory=dict)


class RunTotals:
    """The sums of a run's events so far."""

    def __init__(self) -> None:
        self.flows: dict[str, FlowTotals] = {}
        self.phase = "starting Spark"

    def take(self, event: Mapping[str, Any]) -> None:
        """Add an event."""
        kind = event["event"]
        if kind == "waiting":
            self.phase = "waiting for the end of an earlier run"
        elif kind == "starting":
            self.phase = "starting Spark"
        elif kind == "flow":
            self.phase = "running"
            self.flows.setdefault(event["flow"], FlowTotals()).state = event["state"]
        elif kind == "progress":
            totals = self.flows.setdefault(event["flow"], FlowTotals())
            totals.batches += 1
            totals.rows_read += event["rows_read"]
            totals.rows_written = _sum(totals.rows_written, event["rows_written"])
            totals.progress = event
            for name, counts in event["expectations"].items():
                totals.failed[name] = totals.failed.get(name, 0) + counts["failed"]
        elif kind == "ended":
            self.phase = event["result"]


@contextmanager
def shown(totals: RunTotals, *, as_json: bool) -> Iterator[Show]:
    """Yield a function that shows an event that `totals` has taken."""
    if as_json:
        yield echo_json
    elif sys.stdout.isatty():
        with _live(totals) as show:
            yield show
    else:
        yield _echo_event


@contextmanager
def _live(totals: RunTotals) -> Iterator[Show]:
    from rich.live import Live
    from rich.text import Text

    with Live(
        get_renderable=lambda: render(totals), console=console(), refresh_per_second=4
    ) as live:

        def show(event: Mapping[str, Any]) -> None:
            # The table has the states of flows, but not their errors.
            if event["event"] in ("metrics", "problem", "change") or event.get("error"):
                live.console.print(Text(printable_lines(_line(event) or "")), soft_wrap=True)

        yield show


def render(totals: RunTotals) -> RenderableType:
    """Return the table of all flows."""
    from rich.console import Group
    from rich.text import Text

    rows = [
        (
            short_key(flow),
            _STYLES.get(each.state, dim)(each.state),
            each.batches or None,
            each.rows_read if each.batches else None,
            each.rows_written if each.batches else None,
            lag_text(each.progress.get("lag", {})),
            _seconds_only(each.progress.get("watermark")),
            each.progress.get("state_rows"),
            sum(each.failed.values()) if each.failed else None,
        )
        for flow, each in totals.flows.items()
    ]
    head = Text.assemble(("barnabas pipeline", "bold"), ("  ", ""), (totals.phase, "dim"))
    return Group(head, table(*filled(_COLUMNS, rows))) if rows else head


def filled(
    columns: Sequence[str], rows: Sequence[Sequence[object]]
) -> tuple[list[str], list[list[object]]]:
    """Return a table without its empty columns, which make it wider than a terminal."""
    kept = [n for n in range(len(columns)) if any(row[n] not in (None, "") for row in rows)]
    return [columns[n] for n in kept], [[row[n] for n in kept] for row in rows]


def _seconds_only(moment: str | None) -> str | None:
    """Return a time of Spark without its milliseconds."""
    return None if moment is None else f"{moment.partition('.')[0]}Z"


def _echo_event(event: Mapping[str, Any]) -> None:
    line = _line(event)
    if line is not None:
        echo(line, err=event["event"] in ("problem", "change"))


def _line(event: Mapping[str, Any]) -> str | None:
    """Return the line of an event; None if it has none."""
    match event["event"]:
        case "waiting":
            return "waiting for the end of an earlier run"
        case "starting":
            return "starting Spark"
        case "metrics":
            return f"metrics {event['address']}"
        case "flow":
            if event["state"] in _HIDDEN_STATES:
                return None
            error = f": {event['error']}" if event["error"] else ""
            return f"{short_key(event['flow'])}: {event['state']}{error}"
        case "progress":
            return _progress_line(event)
        case "change":
            word = "refused" if event["refused"] else "note"
            return f"{word}: {event['flow']}: {event['problem']}\n  → {event['remedy']}"
        case "problem":
            return f"error: {event['text']}"
    return None


def _progress_line(event: Mapping[str, Any]) -> str:
    parts = [f"batch {event['batch']}", rows_text(event["rows_read"], event["rows_written"])]
    if event["lag"]:
        parts.append(f"lag {lag_text(event['lag'])}")
    if event["watermark"]:
        parts.append(f"watermark {event['watermark']}")
    if event["state_rows"] is not None:
        parts.append(f"state {event['state_rows']} rows")
    if event["late_rows"]:
        parts.append(f"{event['late_rows']} rows too late")
    parts += [
        f"{counts['failed']} of {counts['rows']} rows without {name!r} ({counts['otherwise']})"
        for name, counts in event["expectations"].items()
        if counts["failed"]
    ]
    return f"{short_key(event['flow'])}: {', '.join(parts)}"


def rows_text(read: int, written: int | None) -> str:
    """Return the number of written rows, and that of read rows if it is another one."""
    if written is None:
        return f"{read} rows read"
    return f"{written} rows written" + (f" of {read} read" if read != written else "")


def _sum(total: int | None, more: int | None) -> int | None:
    return None if total is None or more is None else total + more


def lag_text(lag: Mapping[str, int | None]) -> str | None:
    """Return the topics that a flow reads, each with its lag; None for a flow without topics."""
    if not lag:
        return None
    return ", ".join(f"{topic} {'-' if n is None else n}" for topic, n in lag.items())


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
@header_option
@client_options
def status(directory: Path, offline: bool, options: ClientOptions) -> None:
    """Show where the flows of a pipeline are, and how far behind their topics.

    Exit status 1: records were deleted from a topic before the pipeline read them.
    """
    from barnabas.spark.pipelines.checkpoints import read_checkpoints, read_notes
    from barnabas.spark.pipelines.runs import is_running

    with reported():
        project = load_project(directory)
    checkpoints, notes = read_checkpoints(project), read_notes(project.notes)
    bounds = None if offline else topic_bounds(checkpoints, notes, options)
    statuses = flow_statuses(checkpoints, notes, bounds)
    running = is_running(project.notes)
    if options.as_json:
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
