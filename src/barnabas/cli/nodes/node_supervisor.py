"""The supervisor of a node: it starts, watches, restarts and stops the processes of the node.

It holds no data and serves no Kafka client. A process that ends comes back after a delay. The node
fails only if a process ends before it was ready once. A stop ends the brokers first, because their
controlled shutdown needs the controller.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.cli.nodes.node_process import NodeProcess, ProcessState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.cli.nodes.node_process import StartOfProcess
    from barnabas.runtime.clock import Cancellable
    from barnabas.server.configs.node_layout import NodeProcessPlan

_log = logging.getLogger(__name__)


class NodeFailedToStartError(Exception):
    """A process ended before it was ready, or could not be started."""


class NodeSupervisor:
    """Supervises the processes of a node."""

    def __init__(
        self,
        plans: Sequence[tuple[NodeProcessPlan, list[str]]],
        start: StartOfProcess,
        stop_timeout_ms: float,
        on_ready: Callable[[str], None],
        on_failed: Callable[[NodeFailedToStartError], None],
    ) -> None:
        """Create the processes; `start` starts them.

        Args:
            plans: each process with its options, the controller first.
            start: how processes are started and observed.
            stop_timeout_ms: time for the stop of the brokers, and again for that of the controller.
            on_ready: called once with the addresses of all brokers, when all processes are ready.
            on_failed: called with the reason if the node cannot start.
        """
        self._start = start
        self._stop_timeout_ms = stop_timeout_ms
        self._on_ready = on_ready
        self._on_failed = on_failed
        self.processes = [NodeProcess(plan, words, start, self) for plan, words in plans]
        # Whether `on_ready` was called, and whether the node has failed. Never reset.
        self._was_ready = False
        self._has_failed = False
        # Called when all processes have ended; None before `stop`.
        self._on_stopped: Callable[[], None] | None = None
        # Processes that are still to be stopped, in groups; the first group is being stopped.
        self._stopping: list[list[NodeProcess]] = []
        self._deadline: Cancellable | None = None

    @property
    def is_stopping(self) -> bool:
        """Whether a stop was requested."""
        return self._on_stopped is not None

    def start(self) -> None:
        """Start all processes. Failures are reported to `on_failed`."""
        for process in self.processes:
            if self._has_failed:
                return
            self._launch(process)

    def stop(self, on_stopped: Callable[[], None]) -> None:
        """Stop the brokers, then the controller, and call `on_stopped`."""
        if self.is_stopping:
            return
        self._on_stopped = on_stopped
        # A broker that is also the controller ends after the others.
        last = [each for each in self.processes if each.plan.configuration.cluster.is_controller]
        first = [each for each in self.processes if each not in last]
        self._stopping = [first, last]
        self._stop_group()

    def kill(self) -> None:
        """End all processes at once."""
        for process in self.processes:
            process.kill()

    def why_hung(self, limit_ms: float) -> str | None:
        """Return which ready process gave no sign of life within `limit_ms`; None if none."""
        now_ms = self._start.clock.monotonic_ms()
        for process in self.processes:
            if process.state is ProcessState.READY and now_ms - process.alive_ms > limit_ms:
                return f"{process.plan.name} gives no sign of life"
        return None

    def on_life_sign(self, pid: int) -> None:
        """Record a sign of life of the process with this id."""
        for process in self.processes:
            if process.pid == pid:
                process.note_life()

    def on_ready(self, process: NodeProcess) -> None:
        """Handle that a process serves requests."""
        _log.info(
            "Process ready: %s=%d pid=%s", process.plan.kind, process.plan.node_id, process.pid
        )
        if self._was_ready or self.is_stopping or self._has_failed:
            return
        if all(each.was_ready for each in self.processes):
            self._was_ready = True
            brokers = [each for each in self.processes if each.plan.is_broker]
            self._on_ready(",".join(each.address for each in brokers))

    def on_ended(self, process: NodeProcess) -> None:
        """Handle the end of a process: continue the stop, fail, or start it again."""
        if self.is_stopping:
            self._maybe_continue_stop()
            return
        if self._has_failed:
            return
        reason = process.last_message or "its log says why"
        if not process.was_ready:
            self._fail(f"{process.plan.name} ended with {process.end} at its start: {reason}")
            return
        self._restart_later(process, f"ended with {process.end}", process.last_message)

    def _restart_later(self, process: NodeProcess, event: str, reason: str) -> None:
        delay_ms = process.retry_delay_ms()
        process.restarts += 1
        _log.error(
            "Process %s: %s=%d restart_in_ms=%d%s",
            event,
            process.plan.kind,
            process.plan.node_id,
            delay_ms,
            f" reason={reason}" if reason else "",
        )
        self._start.timer.call_later(delay_ms, lambda: self._launch(process))

    def _launch(self, process: NodeProcess) -> None:
        if self.is_stopping or self._has_failed:
            return
        try:
            process.launch()
        except (OSError, ValueError) as error:
            if process.was_ready:
                self._restart_later(process, "cannot be started", str(error))
            else:
                self._fail(f"{process.plan.name} cannot be started: {error}")

    def _fail(self, reason: str) -> None:
        self._has_failed = True
        error = NodeFailedToStartError(reason)
        self.stop(lambda: self._on_failed(error))

    # -- the stop ---------------------------------------------------------------------------

    def _stop_group(self) -> None:
        for process in self._stopping[0]:
            process.terminate()
        self._deadline = self._start.timer.call_later(self._stop_timeout_ms, self._kill_group)
        self._maybe_continue_stop()

    def _kill_group(self) -> None:
        for process in self._stopping[0]:
            if process.pid is not None:
                _log.error(
                    "Process killed, because it did not stop within %d ms "
                    "(barnabas.node.stop.timeout.ms): %s=%d",
                    self._stop_timeout_ms,
                    process.plan.kind,
                    process.plan.node_id,
                )
                process.kill()

    def _maybe_continue_stop(self) -> None:
        if any(process.pid is not None for process in self._stopping[0]):
            return
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._stopping.pop(0)
        if self._stopping:
            self._stop_group()
            return
        assert self._on_stopped is not None
        self._on_stopped()
