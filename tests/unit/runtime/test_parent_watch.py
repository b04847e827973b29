"""The end of another process is reported once, for parents and other processes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from barnabas.runtime.process import ParentWatch
from barnabas.runtime.stepper import LoopStepper

# For what hangs.
LIMIT_MS = 60_000


@pytest.fixture
def stepper() -> Iterator[LoopStepper]:
    made = LoopStepper()
    yield made
    made.close()


def test_the_end_of_a_process_is_reported_once(stepper: LoopStepper) -> None:
    ended: list[str] = []
    with subprocess.Popen(["sleep", "600"]) as process:
        watch = ParentWatch(stepper.runtime.timer, process.pid, lambda: ended.append("ended"))
        watch.start()
        assert not watch.has_ended
        process.kill()
    assert stepper.run_until(lambda: watch.has_ended, LIMIT_MS)
    watch.check()
    assert ended == ["ended"]


def test_a_process_that_has_already_ended_is_reported_at_once(stepper: LoopStepper) -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    ended: list[str] = []
    ParentWatch(stepper.runtime.timer, process.pid, lambda: ended.append("ended")).start()
    assert ended == ["ended"]


def test_a_running_parent_is_not_reported(stepper: LoopStepper) -> None:
    ended: list[str] = []
    watch = ParentWatch(stepper.runtime.timer, os.getppid(), lambda: ended.append("ended"))
    for _ in range(3):
        watch.check()
    assert not ended
