"""The files of docs/security.md that secure a cluster step by step, on three nodes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing.broker_process import ServerProcess
from barnabas.testing.free_ports import HOST, free_ports
from certificates import shared_authority
from conformance.secured_broker import cli
from documents.blocks import sections_of
from waiting import eventually

pytestmark = pytest.mark.conformance

THIS = "tests/conformance/test_secured_cluster.py"
HEADING = "In a cluster"
OPEN, LISTENER, BETWEEN_BROKERS, CLOSED, CONTROLLERS = range(5)
CLUSTER_ID = "xtzWWN4bTjitpL3kfd9s5g"
REFUSED = "super.users=User:admin;User:node"


def files() -> list[str]:
    """Return the file of each step."""
    sections = sections_of("docs/security.md")
    return [block.text for each in sections for block in each.blocks if block.checked_by == THIS]


class Node(ServerProcess):
    """A node that starts with the file of a step."""

    start_timeout_s = 90.0

    def __init__(self, directory: Path, number: int, ports: dict[str, int]) -> None:
        super().__init__(directory / f"node-{number}", "broker.log")
        self.directory.mkdir()
        self.number = number
        self._ports = ports
        self.file = self.directory / "server.properties"
        # A refused node ends after this time.
        self.limit_ms = 60_000

    def use(self, text: str) -> None:
        """Write the file of a step, with the ports and directories of this node."""
        text = text.replace("node.id=1", f"node.id={self.number}").replace(
            "//host1:", f"//host{self.number}:"
        )
        for name, port in self._ports.items():
            text = text.replace(name, f"{HOST}:{port}")
        text = text.replace("/var/lib/barnabas", str(self.directory / "data"))
        text = text.replace("/etc/barnabas", str(self.directory.parent))
        # A cluster that is in use has formatted directories.
        more = f"cluster.id={CLUSTER_ID}\noffsets.topic.num.partitions=1"
        limit = f"initial.broker.registration.timeout.ms={self.limit_ms}"
        self.file.write_text(f"{text}\n{more}\n{limit}\n")

    def _command(self) -> list[str]:
        words = [sys.executable, "-m", "barnabas.cli.main", "start", str(self.file)]
        return [*words, "--exit-with", str(os.getpid())]


class Cluster:
    """Three nodes, and clients at their open and at their new listener."""

    def __init__(self, directory: Path) -> None:
        numbers = free_ports(9)
        places = [(host, port) for host in (1, 2, 3) for port in (9092, 9093, 9094)]
        ports = {f"host{host}:{port}": at for (host, port), at in zip(places, numbers, strict=True)}
        self.nodes = [Node(directory, number, ports) for number in (1, 2, 3)]
        self.open = ("-b", f"{HOST}:{ports['host1:9092']}")
        self._directory = directory
        self.servers = ",".join(f"{HOST}:{ports[f'host{n}:9093']}" for n in (1, 2, 3))
        authority = shared_authority()
        (directory / "ca.pem").write_text(authority.pem)
        authority.issue("CN=broker").write_pem(directory / "broker.pem")

    def client_of(self, user: str) -> tuple[str, ...]:
        """Return the options of a client that logs in by SCRAM."""
        path = self._directory / f"{user}.properties"
        path.write_text(
            f"bootstrap.servers={self.servers}\nsecurity.protocol=SASL_SSL\n"
            f"ssl.ca.location={self._directory}/ca.pem\nsasl.mechanism=SCRAM-SHA-512\n"
            f"sasl.username={user}\nsasl.password={user}-secret\n"
        )
        return ("-F", str(path))

    def start_all(self, text: str) -> None:
        """Start all nodes with the file of a step."""
        for node in self.nodes:
            node.use(text)
            node.launch()
        for node in self.nodes:
            node.await_ready()

    def stop_all(self) -> None:
        for node in self.nodes:
            node.stop()

    def restart_one_by_one(self, text: str, client: tuple[str, ...]) -> None:
        """Restart the nodes with the file of a step; all replicas are in sync in between."""
        for node in self.nodes:
            node.stop()
            node.use(text)
            node.start()
            eventually(lambda: self.in_sync(client))

    def in_sync(self, client: tuple[str, ...]) -> bool:
        shown = cli("partitions", "show", "orders", "--json", *client)
        return shown.returncode == 0 and all(
            len(partition["isr"]) == len(self.nodes) for partition in json.loads(shown.stdout)
        )

    def close(self) -> None:
        for node in self.nodes:
            node.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


def add_users(cluster: Cluster, tmp_path: Path) -> None:
    for user in ("admin", "node"):
        (tmp_path / "password").write_text(f"{user}-secret")
        words = ("users", "add", user, "--password-file", str(tmp_path / "password"))
        eventually(lambda words=words: cli(*words, *cluster.open).returncode == 0)


def test_each_step_of_the_page_keeps_the_cluster_in_use(cluster: Cluster, tmp_path: Path) -> None:
    steps = files()
    cluster.start_all(steps[OPEN])
    add_users(cluster, tmp_path)
    words = ("topics", "create", "orders", "-p", "3", "-r", "3")
    assert cli(*words, *cluster.open).returncode == 0
    admin = cluster.client_of("admin")
    cluster.restart_one_by_one(steps[LISTENER], cluster.open)
    for step in (BETWEEN_BROKERS, CLOSED):
        cluster.restart_one_by_one(steps[step], admin)
    cluster.stop_all()
    cluster.start_all(steps[CONTROLLERS])
    eventually(lambda: cluster.in_sync(admin))
    written = cli("produce", "orders", *admin, stdin="in secret\n")
    assert written.returncode == 0, written.stderr
    assert cli("topics", "list", *cluster.open).returncode == 1


def test_nodes_that_the_controllers_refuse_say_so(cluster: Cluster, tmp_path: Path) -> None:
    closed = files()[CLOSED]
    refused = closed.replace("super.users=User:admin;User:node;User:ANONYMOUS", REFUSED)
    assert refused != closed
    for node in cluster.nodes:
        node.limit_ms = 8_000
        node.use(refused)
        examined = cli("doctor", str(node.file))
        assert examined.returncode == 1
        assert "as User:ANONYMOUS, which is not in super.users" in examined.stdout
        node.use(closed)
        assert "super.users" not in cli("doctor", str(node.file)).stdout
        node.use(refused)
        node.launch()
    for node in cluster.nodes:
        assert node.wait(60) == 1
        log = node.log_file.read_text()
        (fatal,) = [line for line in log.splitlines() if line.startswith("barnabas: ")]
        assert "other controllers refuse requests of this node: " in fatal
        assert "At their listener CONTROLLER (PLAINTEXT) this node is the principal User:" in fatal
        assert "make sure that a majority of them runs" not in log
        # Retries for seconds write a few lines.
        assert log.count("Response of a voter cannot be used") < 10
