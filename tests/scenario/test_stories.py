"""Every story of this folder and its folders, on real processes with real clients.

With BARNABAS_CONFORMANCE_BOOTSTRAP=kafka they are played on Apache Kafka.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from scenario.language import parse
from scenario.stage import Stage, runs_on_kafka

STORIES = sorted(Path(__file__).parent.rglob("*.txt"))
assert STORIES, "there are no stories"


@pytest.mark.conformance
@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path, tmp_path: Path) -> None:
    stage = Stage(tmp_path, kafka=runs_on_kafka())
    try:
        stage.play(parse(path.name, path.read_text()))
    finally:
        stage.close()
        for step, seconds in stage.timings:
            print(f"{seconds:7.2f} s  {step.text}")
