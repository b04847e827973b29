"""Nodes whose principals the other controllers refuse: `doctor` finds it, and the nodes say it.

docs/security-cluster.md has the steps that secure a cluster, and the tests run that page.
"""

from __future__ import annotations

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

pytestmark = pytest.mark.conformance

CLUSTER_ID = "xtzWWN4bTjitpL3kfd9s5g"
ALLOWED = "super.users=User:admin;User:node;User:ANONYMOUS"
REFUSED = "super.users=User:admin;User:node"
HOSTS, PORTS = (1, 2, 3), (9092, 9093, 9094, 9095)


def listeners_file() -> str:
    """Return the file of the page that opens secure listeners beside the open ones."""
    (section,) = sections_of("docs/security-cluster.md")
    (text,) = (block.text for block in section.blocks if block.file == "step-1.properties")
    return text


class Node(ServerProcess):
    """A node that ends soon if the other controllers refuse it."""

    def __init__(self, directory: Path, number: int, ports: dict[str, int]) -> None:
        super().__init__(directory / f"node-{number}", "broker.log")
        self.directory.mkdir()
        self.number = number
        self._ports = ports
        self.file = self.directory / "server.properties"

    def use(self, text: str) -> None:
        """Write the file of a step, with the ports and directories of this node."""
        text = text.replace("node.id=1", f"node.id={self.number}").replace(
            "//host1:", f"//host{self.number}:"
        )
        for name, port in self._ports.items():
            text = text.replace(name, f"{HOST}:{port}")
        text = text.replace("/var/lib/barnabas", str(self.directory / "data"))
        text = text.replace("/etc/barnabas", str(self.directory.parent))
        limit = "initial.broker.registration.timeout.ms=8000"
        self.file.write_text(f"{text}\ncluster.id={CLUSTER_ID}\n{limit}\n")

    def _command(self) -> list[str]:
        words = [sys.executable, "-m", "barnabas.cli.main", "start", str(self.file)]
        return [*words, "--exit-with", str(os.getpid())]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Node]]:
    places = [f"host{host}:{port}" for host in HOSTS for port in PORTS]
    ports = dict(zip(places, free_ports(len(places)), strict=True))
    authority = shared_authority()
    (tmp_path / "ca.pem").write_text(authority.pem)
    authority.issue("CN=broker").write_pem(tmp_path / "broker.pem")
    (tmp_path / "keys.json").write_text('{"keys": []}')
    made = [Node(tmp_path, number, ports) for number in HOSTS]
    yield made
    for node in made:
        node.close()


def test_nodes_that_the_controllers_refuse_say_so(nodes: list[Node]) -> None:
    allowed = listeners_file()
    refused = allowed.replace(ALLOWED, REFUSED)
    assert refused != allowed
    for node in nodes:
        node.use(refused)
        examined = cli("doctor", str(node.file))
        assert examined.returncode == 1
        assert "as User:ANONYMOUS, which is not in super.users" in examined.stdout
        node.use(allowed)
        assert "super.users" not in cli("doctor", str(node.file)).stdout
        node.use(refused)
        node.launch()
    for node in nodes:
        assert node.wait(60) == 1
        log = node.log_file.read_text()
        (fatal,) = [line for line in log.splitlines() if line.startswith("barnabas: ")]
        assert "other controllers refuse requests of this node: " in fatal
        assert "At their listener CONTROLLER (PLAINTEXT) this node is the principal User:" in fatal
        assert "make sure that a majority of them runs" not in log
        # Retries for seconds write a few lines.
        assert log.count("Response of a voter cannot be used") < 10
