"""The brokers that our client is tested against: ours, and Apache Kafka where its jars are.

BARNABAS_KAFKA_JARS names the directory of jars; without it only our broker is used.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing.broker_process import BrokerProcess

JARS = os.environ.get("BARNABAS_KAFKA_JARS", "")
BROKERS = ["barnabas", *(["kafka"] if JARS else [])]
START_SECONDS = 60


class KafkaProcess:
    """One Apache Kafka, broker and controller, on a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ports = (_free_port(), _free_port())
        self._process: subprocess.Popen[bytes] | None = None
        lines = (
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.voters=1@127.0.0.1:{self._ports[1]}",
            f"listeners=PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{self._ports[1]}",
            f"advertised.listeners=PLAINTEXT://{self.bootstrap}",
            "controller.listener.names=CONTROLLER",
            f"log.dirs={directory / 'data'}",
            "offsets.topic.replication.factor=1",
            "offsets.topic.num.partitions=3",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
        )
        (directory / "server.properties").write_text("\n".join(lines))
        arguments = ("format", "-t", "QdpNxGgtTRWZIrBfgrTZkg", "-c", "server.properties")
        subprocess.run(
            [*self._java(), "kafka.tools.StorageTool", *arguments],
            cwd=directory,
            check=True,
            capture_output=True,
        )

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._ports[0]}"

    def _java(self) -> list[str]:
        return ["java", "-Xmx384m", "-cp", f"{JARS}/*"]

    def start(self) -> None:
        with (self._directory / "kafka.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._java(), "kafka.Kafka", "server.properties"],
                cwd=self._directory,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self._ports[0]), 1).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise AssertionError((self._directory / "kafka.log").read_text()[-2000:])

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module", params=BROKERS)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess | KafkaProcess]:
    """A started broker of each kind, which a test may kill and start again."""
    directory = tmp_path_factory.mktemp(request.param)
    made = KafkaProcess(directory) if request.param == "kafka" else BrokerProcess(directory)
    made.start()
    try:
        yield made
    finally:
        made.kill()
