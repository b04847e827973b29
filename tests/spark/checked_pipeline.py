"""Runs a pipeline with one edit of its definitions after the other, in one session of Spark.

    python checked_pipeline.py DIRECTORY < EDITS

EDITS is a list of JSON objects with `old`, `new` and optionally `check`, which is true by default,
and `gone`, a path that is away during the run. A line of JSON has the events of each edit's run.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barnabas.spark.metrics import QueryMetrics
from barnabas.spark.pipelines.pipeline_run import PipelineRun
from barnabas.spark.pipelines.project import load_project
from barnabas.spark.pipelines.run_process import pipeline_session
from barnabas.spark.pipelines.runs import RunRequest


@contextlib.contextmanager
def edited(path: Path, old: str, new: str) -> Iterator[None]:
    text = path.read_text()
    assert old in text, old
    path.write_text(text.replace(old, new))
    try:
        yield
    finally:
        path.write_text(text)


@contextlib.contextmanager
def away(path: Path | None) -> Iterator[None]:
    if path is not None:
        path.rename(f"{path}-away")
    yield
    if path is not None:
        Path(f"{path}-away").rename(path)


def main() -> None:
    """Run all edits."""
    results = os.fdopen(os.dup(1), "w")
    # Spark prints to standard output too.
    os.dup2(2, 1)
    directory = Path(sys.argv[1])
    project = load_project(directory)
    os.chdir(directory)
    with pipeline_session(project, "local[2]", {}) as (session, _java):
        for edit in json.load(sys.stdin):
            file = directory / edit.get("file", "transformations/datasets.py")
            gone = directory / edit["gone"] if "gone" in edit else None
            events: list[Any] = []
            with edited(file, edit["old"], edit["new"]), away(gone):
                request = RunRequest(str(project.spec), check_only=edit.get("check", True))
                run = PipelineRun(
                    load_project(directory), request, session, events.append, QueryMetrics()
                )
                run.run_once()
                run.close()
            results.write(json.dumps(events) + "\n")
            results.flush()


if __name__ == "__main__":
    main()
