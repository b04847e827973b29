"""Runs Apache Kafka on free ports: formats, starts, stops, kills and restarts it.

It has the interface of `barnabas.testing.BrokerProcess`, so that tests can run on both.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from barnabas.protocol.primitives import uuid_to_string
from barnabas.testing.free_ports import free_ports
from jvm.class_archive import class_archive
from jvm.installed import installed
from jvm.java import QUICK, java_command

# Timeouts for operations that hang.
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 90.0
CLUSTER_ID = "QdpNxGgtTRWZIrBfgrTZkg"
# For tests that kill brokers: Apache Kafka restarts on the directory of a killed broker only after
# the session of that broker has ended, which takes nine seconds by default.
QUICK_FENCING = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


class KafkaStartError(RuntimeError):
    """The process ended, or opened no listener in time; the message has its log."""


class KafkaProcess:
    """One Apache Kafka, broker and controller, in a separate directory.

    Args:
        directory: contains data, settings and the log file.
        settings: broker configs, which replace those of a small single node.
        jars: the folder of tests/jvm with the pom.xml.
        machine: Java options for memory, compiler and collector; by default those for a quick
            start.
        features: feature levels for formatting, instead of Kafka's newest.
        source: a Java file of the tests, whose classes Kafka can load.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        jars: str = "kafka",
        machine: Sequence[str] | None = None,
        features: Mapping[str, int] | None = None,
        source: Path | None = None,
    ) -> None:
        self.directory = directory
        self.data_directory = directory / "data"
        self.log_file = directory / "kafka.log"
        self._properties = directory / "server.properties"
        self.host = "127.0.0.1"
        self.port, self._controller_port = free_ports(2)
        self._java = java_command(
            jars,
            log_level="INFO",
            machine=quick_machine(jars) if machine is None else machine,
            source=source,
        )
        self._jars = jars
        # The Kafka that archives classes runs during an installation, and must not install
        # programs.
        self._is_quick = machine is None
        self._settings = dict(settings or {})
        self._features = dict(features or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """HOST:PORT for bootstrap.servers of clients."""
        return f"{self.host}:{self.port}"

    @property
    def controller(self) -> str:
        """HOST:PORT of the controller listener."""
        return f"{self.host}:{self._controller_port}"

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process is not None, "Kafka does not run"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def settings(self) -> dict[str, str]:
        """Return all keys of server.properties."""
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{self.controller}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{self.controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data_directory),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self._settings,
        }

    def format(self) -> None:
        """Write the settings, and format the directory if it is empty."""
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = [f"{key}={value}" for key, value in self.settings().items()]
        self._properties.write_text("\n".join(lines) + "\n")
        if (self.data_directory / "meta.properties").exists():
            return
        if self._is_quick and self.settings()["log.dirs"] == str(self.data_directory):
            self._copy_formatted()
        else:
            self._run_format(self._properties)

    def _copy_formatted(self) -> None:
        """Copy a directory that Kafka's tool has formatted once, with a new directory id."""

        def install(target: Path) -> None:
            target.mkdir()
            properties = target / "server.properties"
            # The tool does not listen. The two ports must differ, even for a controller.
            keys = {
                "process.roles": "broker,controller",
                "node.id": "1",
                "controller.quorum.voters": "1@localhost:2",
                "listeners": "PLAINTEXT://localhost:1,CONTROLLER://localhost:2",
                "controller.listener.names": "CONTROLLER",
                "log.dirs": str(target / "data"),
            }
            properties.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
            self._run_format(properties)

        levels = [f"{name}={level}" for name, level in sorted(self._features.items())]
        pom = Path(__file__).parent / self._jars / "pom.xml"
        template = installed("-".join(["formatted", self._jars, *levels]), [pom], install)
        shutil.copytree(template / "data", self.data_directory, dirs_exist_ok=True)
        meta = self.data_directory / "meta.properties"
        own = f"directory.id={uuid_to_string(os.urandom(16))}"
        text = re.sub(r"(?m)^directory\.id=.*$", own, meta.read_text())
        meta.chmod(0o600)
        meta.write_text(text)

    def _run_format(self, properties: Path) -> None:
        """Format directories by Kafka's tool."""
        words = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID]
        for name, level in self._features.items():
            words += ["--feature", f"{name}={level}"]
        with self.log_file.open("ab") as log:
            subprocess.run(
                [*self._java, *words, "-c", str(properties)],
                stdout=log,
                stderr=log,
                check=True,
                timeout=START_TIMEOUT_S,
            )

    def launch(self) -> None:
        """Format the directory if it is empty, and start Kafka without waiting."""
        assert not self.is_running, "Kafka runs already"
        self.format()
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._java, "kafka.Kafka", str(self._properties)],
                stdout=log,
                stderr=log,
                cwd=self.directory,
            )

    def await_ready(self, timeout_s: float = START_TIMEOUT_S) -> Self:
        """Wait until the listener is open, which happens when the broker is unfenced.

        Raises:
            KafkaStartError: Kafka ended, or took longer than `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if not self.is_running:
                raise KafkaStartError(f"Kafka ended\n{self.log()[-4000:]}")
            try:
                socket.create_connection((self.host, self.port), 1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return self
        self.kill()
        raise KafkaStartError(f"Kafka did not open its listener in time\n{self.log()[-4000:]}")

    def start(self, timeout_s: float = START_TIMEOUT_S) -> Self:
        """Start Kafka, and wait until it is ready."""
        self.launch()
        return self.await_ready(timeout_s)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Stop Kafka, and return its exit status; kill it after a timeout."""
        return self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> int:
        """Kill Kafka, and return its exit status."""
        return self._end(signal.SIGKILL, STOP_TIMEOUT_S)

    def restart(self) -> Self:
        """Stop Kafka if it runs, and start it on the same directory and ports."""
        if self.is_running:
            self.stop()
        return self.start()

    def log(self) -> str:
        """Return the output of all starts."""
        return self.log_file.read_text() if self.log_file.exists() else ""

    def close(self) -> None:
        """Kill Kafka if it runs."""
        if self.is_running:
            self.kill()

    def _end(self, number: signal.Signals, timeout_s: float) -> int:
        process = self._process
        if process is None:
            return 0
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        self._process = None
        return status


def quick_machine(jars: str) -> tuple[str, ...]:
    """Return Java options for a quick start of Kafka."""
    if jars != "kafka":
        # Few tests start other versions, so that an archive would cost more than it saves.
        return QUICK

    def start_and_stop(directory: Path, option: str) -> None:
        process = KafkaProcess(directory, jars=jars, machine=(*QUICK, option))
        try:
            process.start().stop()
        finally:
            process.close()

    return (*QUICK, class_archive(jars, start_and_stop))
