"""The sink `barnabas`, which stops at a step of a batch until the test has done its harm.

A test creates the file `stop-at` with the name of a step. The process that reaches the step removes
the file, writes its id to `stopped`, and goes on when the file `go` exists.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barnabas.spark.topics.source import BarnabasSource
from barnabas.spark.topics.writer import TopicStreamWriter

STEPS = ("before the init", "during produce", "after flush", "between the ends", "after the ends")
# A limit for what hangs.
LIMIT_S = 600


class StopPoint:
    """The files by which a test stops a process of Spark and lets it go on."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)

    def request(self, step: str) -> None:
        """Stop the next process that reaches the step."""
        (self._directory / "stop-at").write_text(step)

    def stopped(self) -> int:
        """The id of the process that has stopped; 0 before."""
        path = self._directory / "stopped"
        return int(path.read_text() or "0") if path.exists() else 0

    def release(self) -> None:
        """Let the stopped process go on."""
        (self._directory / "go").touch()

    def reach(self, step: str) -> None:
        """Stop here if the test has requested it."""
        requested = self._directory / "stop-at"
        if not requested.exists() or requested.read_text() != step:
            return
        try:
            requested.unlink()
        except FileNotFoundError:
            # Another task has reached the step too.
            return
        (self._directory / "stopped").write_text(str(os.getpid()))
        deadline = time.monotonic() + LIMIT_S
        while not (self._directory / "go").exists() and time.monotonic() < deadline:
            time.sleep(0.02)


class StoppingWriter(TopicStreamWriter):
    """Calls the stop point at each step; leaves aborting out, as a driver that has died."""

    point: StopPoint

    def write(self, iterator: Iterator[Any]) -> Any:
        self.point.reach("before the init")

        def rows() -> Iterator[Any]:
            for batch in iterator:
                yield batch
                self.point.reach("during produce")

        written = super().write(rows())
        self.point.reach("after flush")
        return written

    def commit(self, messages: list[Any], batchId: int | None = None) -> None:
        super().commit([messages[0], *[None] * (len(messages) - 1)], batchId)
        self.point.reach("between the ends")
        super().commit(messages, batchId)
        self.point.reach("after the ends")

    def abort(self, messages: list[Any], batchId: int | None = None) -> None:
        pass


class StoppingSink(BarnabasSource):
    """`format("stopping")`; its option stopDirectory holds the files of the stop point."""

    @classmethod
    def name(cls) -> str:
        return "stopping"

    def streamWriter(self, schema: Any, overwrite: bool) -> StoppingWriter:
        directory = self.options.pop("stopdirectory")
        made = super().streamWriter(schema, overwrite)
        writer = StoppingWriter(made._options, made._columns, made._job)
        writer.point = StopPoint(directory)
        return writer
