"""One process of a node: its start, output, end and restarts."""

from __future__ import annotations

import signal
from enum import Enum
from typing import TYPE_CHECKING

from barnabas.cli.nodes.process_output import LineReader
from barnabas.runtime.child_process import INPUT_BYTES_MAX
from barnabas.runtime.forked_process import STATUS_UNKNOWN
from barnabas.settings.properties import format_properties

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    from barnabas.cli.nodes.node_processes import NodeProcesses
    from barnabas.cli.nodes.process_output import NodeLog
    from barnabas.runtime.child_process import ChildProcess
    from barnabas.runtime.clock import Clock, Timer
    from barnabas.runtime.loop import ProcessControl
    from barnabas.server.configs.node_layout import NodeProcessPlan

    class ProcessEvents(Protocol):
        """Methods of the supervisor that its processes call."""

        def on_ready(self, process: NodeProcess) -> None:
            """Handle that a process serves requests."""
            ...

        def on_ended(self, process: NodeProcess) -> None:
            """Handle that a process has ended, as `process.end` tells."""
            ...


# Interval of the checks for the end of a process.
_CHECK_MS = 100.0
_FIRST_RETRY_MS, _RETRY_MS_MAX = 1_000.0, 30_000.0
# A process that has run so long is started again without a longer delay.
_STEADY_MS = 60_000.0
_MESSAGE = b"barnabas: "


class ProcessState(Enum):
    """State of a process of the node."""

    # Not started, or ended.
    DOWN = "down"
    # Started, but not ready.
    STARTING = "starting"
    # Serves requests.
    READY = "ready"


class StartOfProcess:
    """The parts with which all processes of the node are started and observed."""

    def __init__(
        self,
        starter: NodeProcesses,
        clock: Clock,
        timer: Timer,
        control: ProcessControl,
        log: NodeLog,
    ) -> None:
        self.starter = starter
        self.clock = clock
        self.timer = timer
        self.control = control
        self.log = log
        # The environment variables of the processes.
        self.environment: Mapping[str, str] = {}


class NodeProcess:
    """One process of the node, over all its starts.

    Args:
        plan: the id, kind and properties of the process.
        words: further options of `barnabas start`.
        start: starts and observes it.
        events: called when it is ready or has ended.
    """

    def __init__(
        self,
        plan: NodeProcessPlan,
        words: list[str],
        start: StartOfProcess,
        events: ProcessEvents,
    ) -> None:
        self.plan = plan
        self._words = words
        self._start = start
        self._events = events
        self._child: ChildProcess | None = None
        self._readers: list[LineReader] = []
        self.state = ProcessState.DOWN
        # Whether it was ready once; never reset.
        self.was_ready = False
        # HOST:PORT for clients, and of its metrics. Empty before it was ready, and without metrics.
        self.address = ""
        self.metrics_address = ""
        # How the last run ended, and the last message of that run.
        self.end = ""
        self.last_message = ""
        # Number of starts after the first one.
        self.restarts = 0
        # Delay before the next start.
        self._retry_ms = _FIRST_RETRY_MS
        self._started_ms = 0.0
        # Time of the last sign of life, or of the last start; ms of the monotonic clock.
        self.alive_ms = 0.0

    @property
    def pid(self) -> int | None:
        """Id of the running process; None if none runs."""
        return None if self._child is None else self._child.pid

    def launch(self) -> None:
        """Start the process.

        Raises:
            OSError: no process could be started.
            ValueError: the properties are too large.
        """
        assert self._child is None, f"{self.plan.name} runs as process {self.pid}"
        text = format_properties(self.plan.properties).encode("latin-1", "backslashreplace")
        if len(text) > INPUT_BYTES_MAX:
            raise ValueError(
                f"the configuration of {self.plan.name} has {len(text)} bytes, and at most "
                f"{INPUT_BYTES_MAX} are possible; move certificates and keys into files"
            )
        words = ["start", "-", "--set", f"node.id={self.plan.node_id}", *self._words]
        child = self._start.starter.start(words, self._start.environment, text)
        self._child = child
        self.state = ProcessState.STARTING
        self.last_message = self.metrics_address = ""
        self._started_ms = self.alive_ms = self._start.clock.monotonic_ms()
        assert child.stdout is not None
        assert child.stderr is not None
        control = self._start.control
        self._readers = [
            LineReader(child.stdout, control, self._on_output),
            LineReader(child.stderr, control, self._on_log_line),
        ]
        # Only the first start creates topics.
        self._words = [word for word in self._words if not word.startswith("--topic=")]
        self._start.timer.call_later(_CHECK_MS, self._check)

    def retry_delay_ms(self) -> float:
        """Return the delay before the next start; it doubles with each call."""
        if self._start.clock.monotonic_ms() - self._started_ms >= _STEADY_MS:
            self._retry_ms = _FIRST_RETRY_MS
        delay_ms = self._retry_ms
        self._retry_ms = min(2 * delay_ms, _RETRY_MS_MAX)
        return delay_ms

    def terminate(self) -> None:
        """Request a clean stop."""
        if self._child is not None:
            self._child.terminate()

    def kill(self) -> None:
        """End the process at once."""
        if self._child is not None:
            self._child.kill()

    def note_life(self) -> None:
        """Record a sign of life."""
        self.alive_ms = self._start.clock.monotonic_ms()

    def _on_output(self, line: bytes) -> None:
        word, _, rest = line.decode(errors="replace").partition(" ")
        if word == "metrics":
            self.metrics_address = rest
        elif word == "ready":
            self.address = rest
            # The line with the address of the metrics follows in the same write.
            self._start.timer.call_soon(self._become_ready)

    def _become_ready(self) -> None:
        if self.state is ProcessState.STARTING:
            self.state = ProcessState.READY
            self.was_ready = True
            self.note_life()
            self._events.on_ready(self)

    def _on_log_line(self, line: bytes) -> None:
        if line.startswith(_MESSAGE):
            self.last_message = line.removeprefix(_MESSAGE).decode(errors="replace")
        self._start.log.write(self.plan.kind, self.plan.node_id, line)

    def _check(self) -> None:
        child = self._child
        if child is None:
            return
        status = child.poll()
        if status is None:
            self._start.timer.call_later(_CHECK_MS, self._check)
            return
        for reader in self._readers:
            reader.close()
        self._readers = []
        self._child = None
        self.state = ProcessState.DOWN
        self.end = _end(status)
        self._events.on_ended(self)


def _end(status: int) -> str:
    """Describe an exit status as `subprocess` reports it."""
    if status == STATUS_UNKNOWN:
        return "an unknown exit status, because the process that forks the others has ended"
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"
