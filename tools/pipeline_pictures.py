"""Writes the pictures of docs/pipelines.md: `python -m tools.pipeline_pictures [FOLDER]`.

The example `flights_declared` runs on a broker. The live table of `barnabas pipeline run` is drawn
by rich, and the console's page by Chromium, when the pipeline has read a part of the year.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from barnabas.cli.spark.pipeline_runs import RunTotals, render
from barnabas.testing.broker_process import BrokerProcess
from examples.flights import events, produce
from examples.flights_declared import run
from tools.chromium import Chromium
from tools.console_output import READY, console_output, read_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDER = Path(__file__).parents[1] / "docs" / "images"
WIDTH = 120


def main() -> None:
    """Start the broker, the pipeline and the console, and draw."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    closing = set(events.closing_events())
    year = [pair for pair in produce.in_order() if pair[1] not in closing]
    with BrokerProcess() as broker, tempfile.TemporaryDirectory() as place:
        project = Path(place, "flights")
        run.prepare(broker.bootstrap, project)
        _send(broker.bootstrap, year[: len(year) // 2])
        with (
            console_output("-b", broker.bootstrap, "--pipeline", str(project)) as output,
            _pipeline(broker.bootstrap, project) as it,
        ):
            url = read_line(output, READY)
            totals = RunTotals()
            # After a whole round all flows have progress, and the next one finds a backlog.
            _follow(it, totals, lambda event: event["event"] == "ended")
            _send(broker.bootstrap, year[len(year) // 2 :])
            _follow(it, totals, _has_state_and_lag)
            _draw_terminal(totals, folder / "pipeline-run.svg")
            with Chromium() as browser:
                browser.shape(1280, 420, dark=False)
                browser.open(f"{url}/pipelines")
                browser.picture(folder / "console-pipeline.png")


def _send(bootstrap: str, pairs: list[tuple[str, events.Event]]) -> None:
    with produce.new_producer(bootstrap) as producer:
        produce.send(producer, pairs)


def _has_state_and_lag(event: dict[str, Any]) -> bool:
    return event["event"] == "progress" and event["state_rows"] and sum(event["lag"].values()) > 0


@contextmanager
def _pipeline(bootstrap: str, project: Path) -> Iterator[subprocess.Popen[str]]:
    words = ["run", "--project", str(project), "--every", "1s", "--master", "local[2]", "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "barnabas", "pipeline", *words],
        env={**os.environ, "BARNABAS_BOOTSTRAP": bootstrap},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def _follow(
    pipeline: subprocess.Popen[str], totals: RunTotals, condition: Callable[[dict[str, Any]], bool]
) -> None:
    """Take events up to the first one that meets a condition."""
    assert pipeline.stdout is not None
    for line in pipeline.stdout:
        event = json.loads(line)
        totals.take(event)
        if condition(event):
            return
    raise SystemExit("the pipeline has ended")


def _draw_terminal(totals: RunTotals, file: Path) -> None:
    """Draw the live table."""
    with Path(os.devnull).open("w") as nothing:
        console = Console(
            width=WIDTH, record=True, file=nothing, force_terminal=True, color_system="truecolor"
        )
        console.print(render(totals))
        title = "barnabas pipeline run --project flights --every 1s"
        picture = console.export_svg(title=title)
    # Fonts of another server are not wanted in the pages.
    file.write_text(re.sub(r"@font-face {.*?}\s*", "", picture, flags=re.DOTALL))


if __name__ == "__main__":
    main()
