"""The recipes of docs/deploy.md on a real cluster: each command of a block, in its order.

`systemctl` starts and stops a node's process, and `mount` leaves it an empty directory. All other
commands run in a shell.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from barnabas.settings.properties import parse_properties
from barnabas.testing.cluster_process import (
    CLIENT_LISTENER,
    ClusterProcess,
    NodeOptions,
    NodeProcess,
)
from barnabas.testing.free_ports import HOST, free_ports
from waiting import eventually

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/deploy.md"
DATA = "/var/lib/barnabas/data"
BACKUP = "/backup/barnabas"
SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
}
UNWELL = "barnabas partitions show --unwell --internal"

pytestmark = pytest.mark.conformance


def blocks(heading: str, kind: str) -> list[str]:
    """The code blocks of a section of the page."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = re.findall(rf"```{kind}\n(.*?)```", section, re.DOTALL)
    assert found, heading
    return found


def commands(heading: str, block: int = 0) -> list[str]:
    """The commands of a block."""
    lines = blocks(heading, "console")[block].splitlines()
    return [line.removeprefix("$ ") for line in lines]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcess]:
    with ClusterProcess(3, directory=tmp_path / "cluster", settings=SETTINGS) as found:
        shell(found, "barnabas topics create orders --partitions 4 --replication-factor 3")
        shell(found, "barnabas produce orders", "".join(f"{each}\n" for each in range(100)))
        yield found


def shell(cluster: ClusterProcess, command: str, text: str = "", *, check: bool = True) -> str:
    """Run a command; returns its output."""
    done = subprocess.run(
        ["bash", "-c", command], check=False, input=text, capture_output=True, text=True,
        timeout=200, env={
            **os.environ, "BARNABAS_BOOTSTRAP": cluster.bootstrap,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
    )  # fmt: skip
    assert done.returncode == 0 or not check, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout if done.returncode == 0 else ""


def play(cluster: ClusterProcess, nodes: Sequence[NodeProcess], lines: list[str]) -> dict[str, str]:
    """Run the commands of a block on each of the nodes; returns the output of each."""
    said: dict[str, str] = {}
    for line in lines:
        match line.split()[:2]:
            case ["systemctl", "stop"]:
                for node in nodes:
                    assert node.stop() == 0
            case ["systemctl", "start"]:
                for node in nodes:
                    node.launch()
                for node in nodes:
                    node.await_ready()
            case ["mount", "/var/lib/barnabas"]:
                for node in nodes:
                    node.wipe()
            case ["rm" | "cp", _] | ["barnabas", "log"]:
                for node in nodes:
                    place = line.replace(DATA, str(node.data_directory))
                    said[line] = shell(cluster, place.replace(BACKUP, f"{node.directory}/backup"))
            case _ if line == UNWELL:
                said[line] = eventually(
                    lambda: shell(cluster, f"{UNWELL} && echo well", check=False), "not in sync"
                )
            case _:
                said[line] = shell(cluster, line)
    return said


def records(cluster: ClusterProcess) -> list[int]:
    """Return the records of the topic, sorted."""
    return sorted(
        int(line)
        for line in shell(cluster, "barnabas consume orders --from beginning --exit-at-end").split()
    )


def holders(cluster: ClusterProcess) -> set[int]:
    """Ids of the brokers that hold a replica of the topic."""
    text = shell(cluster, "barnabas partitions show orders --json")
    return {
        int(each)
        for found in re.findall(r'"replicas": ?\[([^\]]*)\]', text)
        for each in found.split(",")
    }


def new_node(cluster: ClusterProcess) -> NodeProcess:
    """The fourth node, as the page has it, with the addresses of this cluster."""
    keys = parse_properties(blocks("Adding a node", "properties")[0])
    ports = dict(zip(("client",), free_ports(1), strict=True))
    keys["controller.quorum.voters"] = cluster.brokers[0].settings["controller.quorum.voters"]
    keys["listeners"] = keys["listeners"].replace("host4:9092", f"{HOST}:{ports['client']}")
    options = NodeOptions(
        int(keys["node.id"]),
        ("broker",),
        {CLIENT_LISTENER: (HOST, ports["client"])},
        cluster.cluster_id,
        cluster.directory / "node-4",
    )
    return NodeProcess(options, keys)


@pytest.mark.nightly
def test_a_node_is_added_and_removed_again(cluster: ClusterProcess) -> None:
    node = new_node(cluster)
    try:
        said = play(cluster, [node], commands("Adding a node"))
        assert node.address in said["barnabas brokers list"]
        assert holders(cluster) == {1, 2, 3, 4}
        play(cluster, [node], commands("Removing a node"))
        assert holders(cluster) == {1, 2, 3}
        assert node.address not in shell(cluster, "barnabas brokers list")
        assert records(cluster) == list(range(100))
    finally:
        node.close()


@pytest.mark.nightly
def test_a_disk_is_replaced(cluster: ClusterProcess) -> None:
    node = cluster.brokers[2]
    play(cluster, [node], commands("Replacing a disk"))
    assert list(node.data_directory.glob("orders-*/*.log")), "the partitions were copied"
    for other in cluster.brokers[:2]:
        other.kill()
        other.start()
    assert records(cluster) == list(range(100))


def test_a_cluster_is_restored_from_its_backup(cluster: ClusterProcess) -> None:
    shell(
        cluster,
        "barnabas consume orders --group billing --from beginning --max-records 40 > /dev/null",
    )
    before = shell(cluster, "barnabas groups describe billing --json")
    play(cluster, cluster.brokers, commands("Backup and restore"))
    shell(cluster, "barnabas produce orders", "1000\n")
    assert len(records(cluster)) == 101
    play(cluster, cluster.brokers, commands("Backup and restore", 1))
    assert records(cluster) == list(range(100))
    offsets = re.compile(r'"(?:committed|current|offset)[a-z_]*": ?(\d+)')
    after = shell(cluster, "barnabas groups describe billing --json")
    assert offsets.findall(after) == offsets.findall(before) != []
