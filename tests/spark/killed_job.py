"""A Spark job in a process of its own, which tests kill in the midst of its work."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest

from waiting import eventually

# A limit for what hangs.
TIMEOUT_S = 300
# As many at least has what the tests write.
BATCHES = 10
# Tests kill a job after so many batches each time: in its first batch, which sets up all, too.
KILLS = [
    pytest.param((1,), id="once"),
    pytest.param((0, 1, 4), id="three times", marks=pytest.mark.nightly),
]
# A job that is to be killed does not end before: it goes on when it has caught up.
FOREVER, TO_THE_END = {"processingTime": "0 seconds"}, {"availableNow": True}


def kill_and_finish(
    start: Callable[[dict[str, object]], Job], kills: tuple[int, ...], seed: int
) -> None:
    """Kill a job after so many batches each time, then let it come to its end.

    Args:
        start: starts the job with a trigger.
        kills: batches before each kill.
        seed: decides about the moments.
    """
    chance = random.Random(seed)
    for batches in kills:
        with start(FOREVER) as job:
            job.run_on(batches, chance.uniform(0, 0.8 if batches else 4))
    with start(TO_THE_END) as job:
        job.finish()


class Job:
    """One life of the job, in a process group of its own.

    Args:
        trigger: FOREVER or TO_THE_END.
        arguments: more words for the script.
    """

    def __init__(
        self,
        script: Path,
        bootstrap: str,
        topic: str,
        directory: Path,
        trigger: dict[str, object],
        *arguments: str,
    ) -> None:
        self._commits = directory / "checkpoint" / "commits"
        self._log = directory / "job.log"
        with self._log.open("ab") as log:
            words = [bootstrap, topic, directory, json.dumps(trigger), *arguments]
            self._process = subprocess.Popen(
                [sys.executable, script, *words],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill the driver, and with `local` masters the tasks."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def committed(self) -> int:
        """Batches that the checkpoint has as done."""
        return sum(path.name.isdigit() for path in self._commits.glob("*"))

    def run_on(self, batches: int, seconds: float) -> None:
        """Let so many more batches be done, if there are, then wait into the middle of another."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "started\n", self.log()
        goal = min(self.committed() + batches, BATCHES)
        eventually(
            lambda: self._process.poll() is not None or self.committed() >= goal,
            self.log,
            TIMEOUT_S,
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        assert self._process.poll() is None, f"it ended by itself\n{self.log()}"

    def finish(self) -> None:
        """Let it come to its end."""
        output, _ = self._process.communicate(timeout=TIMEOUT_S)
        assert output.split() == ["started", "finished"], self.log()

    def log(self) -> str:
        """The end of what its lives have written."""
        return self._log.read_text()[-10_000:]
