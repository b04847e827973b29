"""The processes of a node, forked from a template and started as interpreters of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from barnabas.cli.nodes.node_processes import NodeProcesses
from barnabas.runtime.forked_process import can_fork
from barnabas.runtime.process_table import process_identity
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.runtime.child_process import ChildProcess

LIMIT_S = 90.0
START = ("start", "--port", "0")

needs_forks = pytest.mark.skipif(not can_fork(), reason="this system cannot fork from a template")


@pytest.fixture(
    params=[pytest.param(True, id="fork", marks=needs_forks), pytest.param(False, id="subprocess")]
)
def processes(request: pytest.FixtureRequest) -> Iterator[NodeProcesses]:
    made = NodeProcesses(is_forking=request.param)
    yield made
    made.close()


def ready_line(child: ChildProcess) -> str:
    assert child.stdout is not None
    return child.stdout.readline().decode()


def written(address: str) -> list[object]:
    """Return the errors of one record that is written to a broker."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": address})
    producer.produce("some", b"value", on_delivery=lambda error, _: errors.append(error))
    producer.flush(LIMIT_S)
    return errors


def test_brokers_serve_and_stop_cleanly(processes: NodeProcesses) -> None:
    children = [processes.start([*START, "--temporary"], os.environ) for _ in range(2)]
    addresses = [ready_line(child).split()[1] for child in children]
    assert len(set(addresses)) == 2
    for address in addresses:
        assert written(address) == [None]
    for child in children:
        child.terminate()
    assert [child.wait(LIMIT_S) for child in children] == [0, 0]
    for child in children:
        assert child.stderr is not None
        assert child.stderr.read() == b""


def test_a_broker_that_cannot_start_says_why(processes: NodeProcesses) -> None:
    child = processes.start([*START, "--temporary", "--set", "num.partitions=none"], os.environ)
    assert child.wait(LIMIT_S) == 1
    assert child.stderr is not None
    assert b"num.partitions" in child.stderr.read()


def test_clusters_have_ids_of_their_own(processes: NodeProcesses, tmp_path: Path) -> None:
    ids = set()
    for name in ("a", "b"):
        child = processes.start([*START, "--data-dir", str(tmp_path / name)], os.environ)
        assert ready_line(child)
        child.terminate()
        assert child.wait(LIMIT_S) == 0
        text = (tmp_path / name / "meta.properties").read_text()
        ids.update(line for line in text.splitlines() if line.startswith("cluster.id="))
    assert len(ids) == 2


# It starts a broker with a directory, prints both process ids, and waits to be killed.
_PARENT = """
import os, sys
from barnabas.cli.nodes.node_processes import NodeProcesses
processes = NodeProcesses(is_forking=sys.argv[1] == "True")
child = processes.start(["start", "--port", "0", "--data-dir", sys.argv[2]], os.environ)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("is_forking", [pytest.param(True, marks=needs_forks), pytest.param(False)])
def test_a_broker_stops_cleanly_when_its_parent_is_killed(tmp_path: Path, is_forking: bool) -> None:
    directory = tmp_path / "data"
    command = [sys.executable, "-c", _PARENT, str(is_forking), str(directory)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        identity = process_identity(pid)
        assert identity is not None
        parent.send_signal(signal.SIGKILL)
    eventually(lambda: process_identity(pid) != identity, "the broker still runs")
    assert (directory / ".kafka_cleanshutdown").exists()


@needs_forks
def test_a_forked_broker_shares_the_memory_of_its_template() -> None:
    def own_memory(*, is_forking: bool) -> int:
        processes = NodeProcesses(is_forking=is_forking)
        child = processes.start([*START, "--temporary"], os.environ)
        try:
            assert ready_line(child)
            lines = Path(f"/proc/{child.pid}/smaps_rollup").read_text().splitlines()
            sizes = {line.split()[0]: line.split()[1] for line in lines[1:]}
            return int(sizes["Private_Dirty:"]) + int(sizes["Private_Clean:"])
        finally:
            child.terminate()
            child.wait(LIMIT_S)
            processes.close()

    assert own_memory(is_forking=True) < 0.75 * own_memory(is_forking=False)
