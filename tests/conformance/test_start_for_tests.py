"""Options of `barnabas start` for tests: temporary directory, topics, ready file.

The brokers run as processes of a program that is killed, as pytest may be.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from barnabas.testing.broker_process import BrokerProcess
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT_S = 90.0
START = [sys.executable, "-m", "barnabas.cli.main", "start"]

# Starts servers, prints their addresses, and then waits until it is killed.
OWNER = """
import sys, time
from barnabas.testing.broker_process import BrokerProcess
from barnabas.testing.cluster_process import ClusterProcess
if sys.argv[1] == "cluster":
    made = ClusterProcess(3).start()
    nodes = list(made.nodes.values())
else:
    made = BrokerProcess().start()
    nodes = [made]
if sys.argv[1] == "paused":
    made.pause()
print(made.directory, *(node.pid for node in nodes), flush=True)
time.sleep(600)
"""


def is_running(pid: int) -> bool:
    """Return whether a process runs; a zombie does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """The directory in which processes of this test create temporary directories."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    return directory


@pytest.fixture
def start(temporary: Path) -> Iterator[object]:
    """Return a function that starts a program with TMPDIR; all are killed after the test."""
    started: list[subprocess.Popen[str]] = []

    def run(*words: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "TMPDIR": str(temporary)}
        process = subprocess.Popen(
            # The tests may run under nohup, which ignores SIGHUP.
            ["env", "--default-signal=HUP", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def topics_of(address: str) -> dict[str, int]:
    found = AdminClient({"bootstrap.servers": address}).list_topics(timeout=WAIT_S).topics
    return {name: len(topic.partitions) for name, topic in found.items()}


def test_a_temporary_broker_has_its_topics_and_leaves_no_files(
    start, temporary: Path, tmp_path: Path
) -> None:
    ready_file = tmp_path / "ready"
    ready_file.write_text("of an earlier broker")
    words = ["--temporary", "--port", "0", "--topic", "orders:3", "--topic", "events"]
    process = start(*START, *words, "--ready-file", str(ready_file))
    line = process.stdout.readline()
    address = line.removeprefix("ready ").strip()
    assert ready_file.read_text() == f"{address}\n"
    assert topics_of(address) == {"orders": 3, "events": 1}
    assert len(list(temporary.iterdir())) == 1
    process.terminate()
    assert process.wait(WAIT_S) == 0
    assert not list(temporary.iterdir())
    assert not ready_file.exists()


def test_the_ready_file_appears_complete(start, tmp_path: Path) -> None:
    ready_file = tmp_path / "ready"
    start(*START, "--temporary", "--port", "0", "--ready-file", str(ready_file))
    eventually(ready_file.exists)
    host, _, port = ready_file.read_text().rpartition(":")
    assert host == "127.0.0.1"
    assert port.endswith("\n")
    assert int(port) > 0


def test_a_closed_terminal_ends_a_temporary_broker(start, temporary: Path) -> None:
    process = start(*START, "--temporary", "--port", "0")
    assert process.stdout.readline().startswith("ready ")
    process.send_signal(signal.SIGHUP)
    assert process.wait(WAIT_S) == 0
    assert not list(temporary.iterdir())


def test_an_existing_topic_is_not_changed(start, tmp_path: Path) -> None:
    words = [*START, "--port", "0", "--data-dir", str(tmp_path / "data"), "--topic"]
    for topic in ("orders:3", "orders:5"):
        process = start(*words, topic)
        address = process.stdout.readline().removeprefix("ready ").strip()
        assert topics_of(address) == {"orders": 3}
        process.terminate()
        assert process.wait(WAIT_S) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--topic", "orders:none"], "NAME:PARTITIONS"),
        (["--topic", "bad/name"], "INVALID_TOPIC_EXCEPTION"),
        (["--data-dir", "x"], "omit --data-dir"),
        (["--listen", "127.0.0.1:0"], "give only one of them"),
        (["--ready-file", "/dev/null/file"], "Not a directory"),
    ],
)
def test_invalid_options_are_refused_and_leave_no_files(
    start, temporary: Path, words: list[str], message: str
) -> None:
    process = start(*START, "--temporary", "--port", "0", *words)
    output, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert message in errors
    assert output == ""
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("what", ["broker", "paused", "cluster"])
def test_servers_end_with_a_killed_program_and_remove_its_directory(
    start, temporary: Path, what: str
) -> None:
    owner = start(sys.executable, "-c", OWNER, what)
    directory, *pids = owner.stdout.readline().split()
    assert Path(directory).parent == temporary
    assert all(is_running(int(pid)) for pid in pids)
    owner.kill()
    owner.wait(WAIT_S)
    eventually(lambda: not any(is_running(int(pid)) for pid in pids))
    assert not list(temporary.iterdir())


def test_a_data_directory_is_kept_when_the_program_is_killed(start, tmp_path: Path) -> None:
    words = ["--port", "0", "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(["sleep", "600"]) as other:
        process = start(*START, *words, "--exit-with", str(other.pid))
        assert process.stdout.readline().startswith("ready ")
        other.kill()
        other.wait()
        assert process.wait(WAIT_S) == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_broker_whose_parent_has_already_ended_stops(start) -> None:
    with subprocess.Popen(["true"]) as other:
        pass
    process = start(*START, "--temporary", "--port", "0", "--exit-with", str(other.pid))
    assert process.wait(WAIT_S) == 0


def test_the_end_of_the_starting_thread_does_not_stop_a_broker() -> None:
    import threading

    process = BrokerProcess()
    thread = threading.Thread(target=process.start)
    thread.start()
    thread.join()
    try:
        assert topics_of(process.bootstrap) == {}
        assert process.is_running
    finally:
        process.close()
    assert not process.directory.exists()
