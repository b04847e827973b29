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
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from barnabas.cli.pipeline.run_display import RunTotals, render
from barnabas.testing.broker_process import BrokerProcess
from examples.flights import events, produce
from examples.flights_declared import run
from tools.chromium import Chromium

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parents[1] / "docs" / "images"
WIDTH = 100
SECONDS = 60.0
# Flows that read streams.
FLOWS = 5


def main() -> None:
    """Start the broker, the pipeline and the console, and draw."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    with BrokerProcess() as broker, tempfile.TemporaryDirectory() as place:
        project = Path(place, "flights")
        run.prepare(broker.bootstrap, project)
        sending = threading.Thread(target=_send, args=(broker.bootstrap,), daemon=True)
        with _console(broker.bootstrap, project) as url, _pipeline(broker.bootstrap, project) as it:
            sending.start()
            _draw_terminal(it, folder / "pipeline-run.svg")
            with Chromium() as browser:
                browser.shape(1280, 420, dark=False)
                browser.open(f"{url}/pipelines")
                browser.picture(folder / "console-pipeline.png")


def _send(bootstrap: str) -> None:
    closing = set(events.closing_events())
    pairs = [pair for pair in produce.in_order() if pair[1] not in closing]
    with produce.new_producer(bootstrap) as producer:
        produce.send_steadily(producer, pairs, SECONDS)


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


@contextmanager
def _console(bootstrap: str, project: Path) -> Iterator[str]:
    """Yield the address of a running console."""
    words = ["console", "-b", bootstrap, "--port", "0", "--pipeline", str(project)]
    with subprocess.Popen(
        [sys.executable, "-m", "barnabas", *words], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        found = re.fullmatch(r"ready (\S+)/\n", process.stdout.readline())
        assert found is not None
        try:
            yield found[1]
        finally:
            process.terminate()


def _draw_terminal(pipeline: subprocess.Popen[str], file: Path) -> None:
    """Draw the live table when all flows have progress, and one with state has a lag."""
    totals = RunTotals()
    assert pipeline.stdout is not None
    for line in pipeline.stdout:
        totals.take(json.loads(line))
        progress = [flow.progress for flow in totals.flows.values() if flow.progress]
        behind = any(each["state_rows"] and sum(each["lag"].values()) for each in progress)
        if len(progress) == FLOWS and behind:
            break
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
