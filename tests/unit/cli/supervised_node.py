"""A supervised node of a controller and two brokers, whose processes do what the test says."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from barnabas.cli.nodes.node_process import NodeProcess, StartOfProcess
from barnabas.cli.nodes.node_supervisor import NodeSupervisor
from barnabas.cli.nodes.process_output import NodeLog
from barnabas.server.configs.node_keys import NodeDirectories
from barnabas.server.configs.node_layout import node_layout
from barnabas.sim.world import sim_runtime

STOP_TIMEOUT_MS = 10_000.0


class Child:
    """A process that runs until the test gives it an exit status."""

    def __init__(self, pid: int, properties: bytes, words: Sequence[str]) -> None:
        self.pid = pid
        self.properties = properties.decode()
        self.words = list(words)
        self.status: int | None = None
        self.signals: list[int] = []
        self.stdout, self._output = _pipe()
        self.stderr, self._log = _pipe()

    def poll(self) -> int | None:
        return self.status

    def wait(self, timeout: float | None = None) -> int:
        assert self.status is not None
        return self.status

    def send_signal(self, sig: int) -> None:
        self.signals.append(sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def print(self, line: str) -> None:
        os.write(self._output, line.encode() + b"\n")

    def log(self, line: str) -> None:
        os.write(self._log, line.encode() + b"\n")


def _pipe() -> tuple[IO[bytes], int]:
    source, sink = os.pipe()
    return os.fdopen(source, "rb", buffering=0), sink


class Starter:
    """Starts children and remembers them."""

    def __init__(self) -> None:
        self.children: list[Child] = []

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], standard_input: bytes = b""
    ) -> Child:
        child = Child(1000 + len(self.children), standard_input, words)
        self.children.append(child)
        return child


class Control:
    """Calls back for input when the test says so."""

    def __init__(self) -> None:
        self.readers: dict[int, Callable[[], None]] = {}

    def on_input(self, descriptor: int, callback: Callable[[], None]) -> None:
        self.readers[descriptor] = callback

    def ignore_input(self, descriptor: int) -> None:
        del self.readers[descriptor]


class Node:
    """A supervised node of a controller and two brokers."""

    def __init__(self) -> None:
        self.world, self.runtime = sim_runtime(1)
        self.starter, self.control = Starter(), Control()
        start = StartOfProcess(
            self.starter,
            self.runtime.clock,
            self.runtime.timer,
            self.control,
            NodeLog("text"),
        )
        plans = node_layout(
            {"log.dirs": "/data"}, 2, NodeDirectories(), lambda: "MkU3OEVBNTcwNTJENDM2Qg", len
        )
        self.ready: list[str] = []
        self.failures: list[str] = []
        self.supervisor = NodeSupervisor(
            [(plan, ["--topic=a"] if plan.number == 1 else []) for plan in plans],
            start,
            STOP_TIMEOUT_MS,
            self.ready.append,
            lambda error: self.failures.append(str(error)),
        )
        self.supervisor.start()

    @property
    def processes(self) -> list[NodeProcess]:
        return self.supervisor.processes

    @property
    def children(self) -> list[Child]:
        return self.starter.children

    def run(self, ms: float = 1_000) -> None:
        """Deliver input, and let time pass."""
        for callback in list(self.control.readers.values()):
            callback()
        self.world.run_for(ms)

    def become_ready(self) -> None:
        for number, child in enumerate(self.children):
            child.print(f"ready host:{number}")
        self.run()
