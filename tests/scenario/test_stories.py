"""Every story of this folder and its subfolders, on real processes with real clients.

With BARNABAS_CONFORMANCE_BOOTSTRAP=kafka they run on Apache Kafka.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scenario.language import parse
from scenario.stage import Stage, runs_on_kafka

STORIES = sorted(Path(__file__).parent.rglob("*.txt"))
assert STORIES, "there are no stories"
# Stories that are similar to other stories. They run only in `make nightly`.
NIGHTLY = {
    "all-brokers-die-with-open-transactions",
    "all-nodes-die",
    "alter-partition-is-delayed",
    "coordinator-dies-after-a-timeout",
    "coordinator-dies-after-the-commit",
    "coordinator-dies-before-the-abort-marker",
    "coordinator-dies-while-empty",
    "coordinator-dies-while-ongoing",
    "coordinator-moves-under-load",
    "data-leader-dies-before-the-marker",
    "disk-is-full",
    "follower-restarts-before-its-checkpoint",
    "former-leader-has-extra-records",
    "brokers-die-under-transactions",
    "leader-is-fenced-before-the-marker",
    "leaders-change-quickly",
    "offsets-leader-dies-while-pending",
    "paused-producer-is-fenced",
    "preferred-leader-comes-back",
    "producer-dies-in-the-middle",
    "reassignment-during-fail-over",
    "too-few-in-sync",
}
assert {path.stem for path in STORIES} > NIGHTLY


def stories() -> list[Any]:
    """Return the stories as parameters of a test."""
    return [
        pytest.param(path, id=path.stem, marks=pytest.mark.nightly if path.stem in NIGHTLY else ())
        for path in STORIES
    ]


@pytest.mark.conformance
@pytest.mark.parametrize("path", stories())
def test_story(path: Path, tmp_path: Path) -> None:
    stage = Stage(tmp_path, kafka=runs_on_kafka())
    try:
        stage.play(parse(path.name, path.read_text()))
    finally:
        stage.close()
        for step, seconds in stage.timings:
            print(f"{seconds:7.2f} s  {step.text}")
