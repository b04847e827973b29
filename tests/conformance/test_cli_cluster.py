"""`barnabas cluster`: processes that any terminal starts, disturbs and stops."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.protocol.messages.nodes import FeatureUpdateKey, UpdateFeaturesRequest
from conformance.cli_shell import Shell
from conformance.raw_client import RawClient
from waiting import eventually, eventually_equal

pytestmark = pytest.mark.conformance

SECONDS = 120


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A shell whose commands are for a cluster of one node, which is stopped at the end."""
    made = Shell("127.0.0.1:1")
    made.environment["BARNABAS_CLUSTER"] = str(tmp_path / "cluster")
    yield made
    made.run("cluster", "kill", "1")


@pytest.fixture
def started(shell: Shell) -> Shell:
    """The same shell after the start of the node."""
    out = shell.ok(
        "cluster", "start", "-n", "1", "-p", "0", "--detach", "--set", "num.partitions=4"
    )
    shell.environment["BARNABAS_BOOTSTRAP"] = out.removeprefix("ready ").strip()
    return shell


def ok(shell: Shell, *words: str) -> str:
    done = shell.run_in_process(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def state(shell: Shell) -> str:
    done = shell.run_in_process("cluster", "status", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found["well"] else 1)
    name: str = found["nodes"][0]["state"]
    return name


def pid_of(shell: Shell) -> int:
    path = Path(shell.environment["BARNABAS_CLUSTER"], "node-1", "process.json")
    pid: int = json.loads(path.read_text())["pid"]
    return pid


def test_a_detached_cluster_is_paused_and_stopped_from_another_terminal(started: Shell) -> None:
    assert state(started) == "running"
    ok(started, "topics", "create", started.topic)
    assert len(started.json("topics", "describe", started.topic)["partitions"]) == 4
    assert ok(started, "cluster", "pause", "1") == "paused node 1\n"
    assert state(started) == "paused"
    assert ok(started, "cluster", "resume") == "resumed node 1\n"
    assert state(started) == "running"
    ok(started, "cluster", "kill", "--leader-of", f"{started.topic}:0")
    assert state(started) == "killed"
    again = started.run_in_process("cluster", "kill", "1")
    assert (again.returncode, again.stderr) == (1, "error: node 1 does not run\n")
    assert ok(started, "cluster", "restart", "1") == "started node 1\n"
    first = pid_of(started)
    assert ok(started, "cluster", "restart") == "restarted node 1\n"
    assert pid_of(started) != first
    assert ok(started, "cluster", "stop") == "stopped node 1\n"
    assert state(started) == "stopped"
    assert ok(started, "cluster", "stop") == "nothing runs\n"


def test_a_process_id_of_another_process_is_never_signaled(started: Shell) -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        path = Path(started.environment["BARNABAS_CLUSTER"], "node-1", "process.json")
        kept = path.read_text()
        path.write_text(json.dumps({**json.loads(kept), "pid": other.pid}))
        assert state(started) == "died"
        assert started.run_in_process("cluster", "kill", "1").returncode == 1
        assert other.poll() is None
        path.write_text(kept)
    finally:
        other.kill()
        other.wait()


def test_a_paused_node_is_stopped_cleanly(started: Shell) -> None:
    ok(started, "cluster", "pause", "1")
    assert ok(started, "cluster", "stop") == "stopped node 1\n"


def test_the_foreground_shows_logs_and_a_signal_stops_all_nodes(shell: Shell) -> None:
    words = shell.command("cluster", "start", "-n", "1", "-p", "0", "--set", "log.level=info")
    process = subprocess.Popen(
        words, env=shell.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert next(lines).startswith("ready 127.0.0.1:")
        assert next(lines).startswith("node 1 | ")
        # Another terminal kills and restarts the node; the first command keeps running.
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


def test_a_directory_belongs_to_its_cluster(started: Shell) -> None:
    done = started.run_in_process("cluster", "start", "-n", "3")
    assert done.returncode == 2
    assert "contains a cluster with 1" in done.stderr
    ok(started, "cluster", "stop")
    before = started.environment["BARNABAS_BOOTSTRAP"]
    assert started.ok("cluster", "start", "--detach") == f"ready {before}\n"


def test_a_node_that_cannot_start_reports_the_reason(shell: Shell) -> None:
    done = shell.run("cluster", "start", "-n", "1", "-p", "0", "--set", "num.partitions=-1")
    assert done.returncode == 1
    assert "num.partitions" in done.stderr
    assert state(shell) == "died"


def test_the_error_names_missing_nodes(started: Shell) -> None:
    done = started.run_in_process("cluster", "pause", "7")
    assert done.returncode == 2
    assert "there is no node 7; the nodes are 1" in done.stderr
    assert "give NODE" in started.run_in_process("cluster", "kill").stderr
    elsewhere = started.run_in_process("cluster", "status", "-d", "/nowhere")
    assert elsewhere.returncode == 1
    assert "barnabas cluster start" in elsewhere.stderr


def test_ports_are_separate_and_brokers_share_the_settings(tmp_path: Path) -> None:
    from barnabas.cli.nodes.cluster_nodes import new_layout, read_layout

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


@pytest.mark.parametrize(
    ("listener", "of_second"),
    [
        ("127.0.0.1:8081", "127.0.0.1:8082"),
        ("http://[::1]:8081", "http://[::1]:8082"),
        ("127.0.0.1:0", "127.0.0.1:0"),
    ],
)
def test_each_broker_has_a_port_for_its_registry(listener: str, of_second: str) -> None:
    from barnabas.cli.nodes.cluster_nodes import new_layout

    key = "barnabas.registry.listener"
    layout = new_layout(2, 1, 19092, {key: listener}, metrics=False)
    lines = [layout.properties(node, Path("/data")).splitlines() for node in layout.nodes]
    for expected, found in zip((listener, of_second, None), lines, strict=True):
        of_registry = [line for line in found if line.startswith(key)]
        assert of_registry == ([] if expected is None else [f"{key}={expected}"])


def test_nodes_do_not_share_an_address_or_a_directory(tmp_path: Path) -> None:
    words = ("cluster", "start", "-d", str(tmp_path), "--set", "listeners=PLAINTEXT://:9092")
    done = Shell("").run_in_process(*words)
    assert done.returncode == 2
    assert "--set listeners: each of the 3 nodes needs its own value" in done.stderr


def test_closing_the_terminal_ends_the_cluster(shell: Shell) -> None:
    words = shell.command("cluster", "start", "-n", "1", "-p", "0")
    process = subprocess.Popen(words, env=shell.environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready ")
    pid = pid_of(shell)
    process.send_signal(signal.SIGHUP)
    assert process.wait(SECONDS) == 0
    process.stdout.close()
    eventually(lambda: not Path(f"/proc/{pid}").exists())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# Three nodes


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A cluster of three, with a topic."""
    made = Shell("127.0.0.1:1")
    made.environment["BARNABAS_CLUSTER"] = str(tmp_path_factory.mktemp("three"))
    out = made.ok("cluster", "start", "-n", "3", "-p", "0", "--detach")
    made.environment["BARNABAS_BOOTSTRAP"] = out.removeprefix("ready ").strip()
    made.ok("topics", "create", made.topic, "-p", "6")
    made.ok("produce", made.topic, stdin="x\n" * 100)
    yield made
    made.run("cluster", "kill", "1", "2", "3")


def status(shell: Shell) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shell.run_in_process("cluster", "status", "--json").stdout)
    return found


def await_status(shell: Shell, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    seen: dict[str, Any] = {}

    def holds() -> bool:
        seen.update(status(shell))
        return condition(seen)

    eventually(holds, lambda: seen)
    return seen


def records(shell: Shell) -> int:
    shown = shell.json("partitions", "show", shell.topic)
    return sum(each["high_watermark"] for each in shown)


def test_three_nodes_have_replication_factor_three(three: Shell) -> None:
    found = await_status(three, lambda found: bool(found["well"]))
    assert [node["roles"] for node in found["nodes"]] == [["broker", "controller"]] * 3

    def shown() -> set[tuple[int, int]]:
        rows = three.json("partitions", "show", three.topic)
        return {(len(each["isr"]), each["min_insync_replicas"]) for each in rows}

    eventually_equal(shown, {(3, 2)})


def test_a_killed_controller_is_replaced_and_returns(three: Shell) -> None:
    await_status(three, lambda found: bool(found["well"]))
    killed = re.fullmatch(r"killed node (\d)\n", ok(three, "cluster", "kill", "--controller"))
    assert killed
    first = int(killed[1])
    found = await_status(three, lambda found: found["controller"] not in (None, first))
    assert {node["node"]: node["state"] for node in found["nodes"]}[first] == "killed"
    [machine] = found["machines"]
    assert (machine["machine"], machine["brokers"]) == ("127.0.0.1", [1, 2, 3])
    assert machine["serving"] == sorted({1, 2, 3} - {first})
    assert [each["broker"] for each in machine["down"]] == [first]
    await_status(three, lambda found: found["offline_partitions"] == 0)
    assert (
        three.run_in_process("cluster", "restart", str(first)).stdout == f"started node {first}\n"
    )
    await_status(three, lambda found: bool(found["well"]))
    eventually_equal(lambda: records(three), 100)


def test_all_nodes_are_restarted_one_by_one(three: Shell) -> None:
    before = await_status(three, lambda found: bool(found["well"]))
    done = three.run_in_process("cluster", "restart")
    assert done.stdout == "restarted node 1\nrestarted node 2\nrestarted node 3\n"
    after = await_status(three, lambda found: bool(found["well"]))
    pids = [{node["pid"] for node in found["nodes"]} for found in (before, after)]
    assert not pids[0] & pids[1]
    eventually_equal(lambda: records(three), 100)


def test_voters_of_a_dynamic_quorum_are_removed_and_added(three: Shell) -> None:
    await_status(three, lambda found: bool(found["well"]))
    raw = RawClient(three.environment["BARNABAS_BOOTSTRAP"].split(",")[0])
    update = FeatureUpdateKey(feature="kraft.version", max_version_level=1, upgrade_type=1)
    request = UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update])
    # The update is refused until all voters have reported their directories.
    eventually(lambda: not raw.ask(request, 1).error_code)
    raw.close()
    quorum = three.json("quorum", "describe")
    follower = next(each for each in quorum["voters"] if each["node"] != quorum["leader"])
    node = str(follower["node"])
    removed = three.json("quorum", "remove", node, "--yes")
    assert follower["node"] not in removed["voters"]
    eventually(
        lambda: (
            follower["node"]
            in [each["node"] for each in three.json("quorum", "describe")["observers"]]
        )
    )
    added = three.json("quorum", "add", node, "--endpoint", follower["endpoints"][0])
    assert sorted(added["voters"]) == [1, 2, 3]
