"""A place to run both networks: the machine's loop, and a simulated world."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.runtime.loop import Runtime
from barnabas.runtime.sockets import Stream
from barnabas.runtime.stepper import LoopStepper
from barnabas.sim.world import SimWorld

# For what hangs.
LIMIT_MS = 60_000.0
STEP_MS = 20.0


class Place:
    """A runtime, and how to let things happen on it."""

    def __init__(
        self, runtime: Runtime, run_until: Callable[[Callable[[], bool], float], bool]
    ) -> None:
        self.runtime = runtime
        self._run_until = run_until

    def until(self, predicate: Callable[[], bool]) -> None:
        """Run until the predicate holds, also if it becomes true without an event of the loop."""
        for _ in range(round(LIMIT_MS / STEP_MS)):
            if self._run_until(predicate, STEP_MS):
                return
        raise AssertionError("it did not happen in time")

    def settle(self) -> None:
        """Let what is under way happen."""
        self._run_until(lambda: False, 30.0)


def real_place(stepper: LoopStepper) -> Place:
    return Place(stepper.runtime, stepper.run_until)


def sim_place(seed: int) -> Place:
    world = SimWorld(seed)
    return Place(world.host("a").runtime, world.run_until)


class Recorder:
    """A stream handler that keeps what it is told."""

    def __init__(self, buffer_bytes: int = 65536) -> None:
        self.stream: Stream | None = None
        self.data = bytearray()
        self.writable: list[bool] = []
        self.closed = False
        self.error: Exception | None = None
        self._buffer = bytearray(buffer_bytes)

    def on_connected(self, stream: Stream) -> None:
        assert self.stream is None
        self.stream = stream

    def get_buffer(self, size_hint: int) -> bytearray:
        return self._buffer

    def on_received(self, count: int) -> None:
        assert not self.closed
        self.data += self._buffer[:count]

    def on_writable_changed(self, writable: bool) -> None:
        self.writable.append(writable)

    def on_closed(self, error: Exception | None) -> None:
        assert not self.closed
        self.closed = True
        self.error = error
