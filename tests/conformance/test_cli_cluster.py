"""`barnabas cluster`: processes that any terminal starts, disturbs and stops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.cli_shell import Shell

pytestmark = pytest.mark.conformance

SECONDS = 30


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A shell whose commands are for a cluster of one node, which is stopped at the end."""
    made = Shell("127.0.0.1:1")
    made.environment["BARNABAS_CLUSTER"] = str(tmp_path / "cluster")
    yield made
    made.run("cluster", "kill", "1")


@pytest.fixture
def started(shell: Shell) -> Shell:
    """The same, once the node runs."""
    out = shell.ok(
        "cluster", "start", "-n", "1", "-p", "0", "--detach", "--set", "num.partitions=4"
    )
    shell.environment["BARNABAS_BOOTSTRAP"] = out.removeprefix("ready ").strip()
    return shell


def state(shell: Shell) -> str:
    done = shell.run("cluster", "status", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found["well"] else 1)
    name: str = found["nodes"][0]["state"]
    return name


def pid_of(shell: Shell) -> int:
    path = Path(shell.environment["BARNABAS_CLUSTER"], "node-1", "process.json")
    pid: int = json.loads(path.read_text())["pid"]
    return pid


def test_a_detached_cluster_is_disturbed_and_stopped_from_elsewhere(started: Shell) -> None:
    assert state(started) == "running"
    started.ok("topics", "create", started.topic)
    assert len(started.json("topics", "describe", started.topic)["partitions"]) == 4
    assert started.ok("cluster", "pause", "1") == "paused node 1\n"
    assert state(started) == "paused"
    assert started.ok("cluster", "resume") == "resumed node 1\n"
    assert state(started) == "running"
    started.ok("cluster", "kill", "--leader-of", f"{started.topic}:0")
    assert state(started) == "killed"
    again = started.run("cluster", "kill", "1")
    assert (again.returncode, again.stderr) == (1, "error: node 1 does not run\n")
    assert started.ok("cluster", "restart", "1") == "started node 1\n"
    first = pid_of(started)
    assert started.ok("cluster", "restart") == "restarted node 1\n"
    assert pid_of(started) != first
    assert started.ok("cluster", "stop") == "stopped node 1\n"
    assert state(started) == "stopped"
    assert started.ok("cluster", "stop") == "nothing runs\n"


def test_a_number_that_stands_for_another_process_is_never_signalled(started: Shell) -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        path = Path(started.environment["BARNABAS_CLUSTER"], "node-1", "process.json")
        kept = path.read_text()
        path.write_text(json.dumps({**json.loads(kept), "pid": other.pid}))
        assert state(started) == "died"
        assert started.run("cluster", "kill", "1").returncode == 1
        assert other.poll() is None
        path.write_text(kept)
    finally:
        other.kill()
        other.wait()


def test_a_paused_node_is_stopped_cleanly(started: Shell) -> None:
    started.ok("cluster", "pause", "1")
    assert started.ok("cluster", "stop") == "stopped node 1\n"


def test_in_the_foreground_logs_are_shown_and_a_signal_stops_all(shell: Shell) -> None:
    words = shell.command("cluster", "start", "-n", "1", "-p", "0", "--set", "log.level=info")
    process = subprocess.Popen(
        words, env=shell.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert next(lines).startswith("ready 127.0.0.1:")
        assert next(lines).startswith("node 1 | ")
        # Killed and started again by another terminal: the first one stays.
        shell.ok("cluster", "kill", "1")
        assert any(line == "node 1 | killed\n" for line in lines)
        shell.ok("cluster", "restart", "1")
        assert any(line in ("node 1 | starts\n", "node 1 | runs\n") for line in lines)
        process.send_signal(signal.SIGTERM)
        _, problems = process.communicate(timeout=SECONDS)
        assert process.returncode == 0
        assert problems.endswith("stopped\n")
        assert state(shell) == "stopped"
    finally:
        process.kill()


def test_a_directory_keeps_its_cluster(started: Shell) -> None:
    done = started.run("cluster", "start", "-n", "3")
    assert done.returncode == 2
    assert "holds a cluster with 1" in done.stderr
    started.ok("cluster", "stop")
    before = started.environment["BARNABAS_BOOTSTRAP"]
    assert started.ok("cluster", "start", "--detach") == f"ready {before}\n"


def test_a_node_that_cannot_start_says_why(shell: Shell) -> None:
    done = shell.run("cluster", "start", "-n", "1", "-p", "0", "--set", "num.partitions=-1")
    assert done.returncode == 1
    assert "num.partitions" in done.stderr
    assert state(shell) == "died"


def test_nodes_that_are_not_there_are_named(started: Shell) -> None:
    done = started.run("cluster", "pause", "7")
    assert done.returncode == 2
    assert "there is no node 7; the nodes are 1" in done.stderr
    assert "name nodes" in started.run("cluster", "kill").stderr
    elsewhere = started.run("cluster", "status", "-d", "/nowhere")
    assert elsewhere.returncode == 1
    assert "barnabas cluster start" in elsewhere.stderr


def test_ports_lie_apart_and_brokers_share_the_settings(tmp_path: Path) -> None:
    from barnabas.cli.cluster.layout import new_layout, read_layout

    layout = new_layout(2, 1, 19092, {"num.partitions": "6"}, metrics=True)
    layout.write(tmp_path)
    assert read_layout(tmp_path) == layout
    assert layout.bootstrap == "127.0.0.1:19092,127.0.0.1:19093"
    broker, _, controller = layout.nodes
    text = layout.properties(broker, Path("/data"))
    for line in (
        "process.roles=broker",
        "controller.quorum.voters=101@127.0.0.1:19194",
        "listeners=PLAINTEXT://127.0.0.1:19092",
        "default.replication.factor=2",
        "min.insync.replicas=1",
        "metrics.listener=127.0.0.1:19292",
        "num.partitions=6",
    ):
        assert line in text.splitlines()
    text = layout.properties(controller, Path("/data"))
    assert "process.roles=controller" in text
    assert "advertised" not in text


def test_the_end_of_the_terminal_ends_the_cluster(shell: Shell) -> None:
    words = shell.command("cluster", "start", "-n", "1", "-p", "0")
    process = subprocess.Popen(words, env=shell.environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready ")
    pid = pid_of(shell)
    process.send_signal(signal.SIGHUP)
    assert process.wait(SECONDS) == 0
    process.stdout.close()
    deadline = time.monotonic() + SECONDS
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
