"""Shows the events of a run: a live table on a terminal, a line for each event elsewhere."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from barnabas.cli.common.output import echo_json
from barnabas.cli.common.printable import echo, printable_lines
from barnabas.cli.common.tables import bad, console, dim, good, table, warn
from barnabas.spark.pipelines.definition import short_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import RenderableType

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
    """What the events of a run said of one flow."""

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
    """What the events of a run said so far."""

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
