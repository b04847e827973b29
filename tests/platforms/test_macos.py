"""Brokers, clients and unit tests on a Python without what macOS lacks (`masking.py`).

The tests show that each call has a replacement. They do not show how macOS behaves.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from barnabas.testing.broker_process import BrokerProcess, BrokerStartError
from barnabas.testing.cluster_process import ClusterProcess
from conformance.records_read_back import read_back
from platforms.masking import MACOS, masked
from selection import nightly_unless
from waiting import eventually

# Tests that run again, in a pytest that lacks the names, on asyncio's own loop.
# A run with paths includes tests of Apache Kafka, which are left out where there are some.
SELECTIONS = {
    "runtime": ["tests/unit/runtime", "tests/unit/cli/test_profile.py"],
    "unit": ["tests/unit", "-n", "2"],
    "clients": [
        *("-k", "not kafka"),
        "tests/conformance/test_produce_consume.py",
        "tests/conformance/test_client_blocking.py",
        "tests/conformance/test_client_producer.py",
    ],
    "kills": ["tests/conformance/test_kill_minus_nine.py"],
}
# The whole of `tests/unit` takes 7 to 20 minutes, the others one or two.
LONG = ("unit", "kills", "runtime")
ROOT = Path(__file__).parents[2]


@pytest.fixture(params=nightly_unless("asyncio".__eq__, ["uvloop", "asyncio"]))
def note(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the ids of all processes of the test, which lack the names."""
    path = tmp_path / "processes"
    without = ["uvloop"] if request.param == "asyncio" else []
    for name, value in masked(MACOS, tmp_path, without=without, note=path).items():
        monkeypatch.setenv(name, value)
    return path


def test_a_broker_serves_recovers_and_locks_its_directory(tmp_path: Path, note: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker", {"log.flush.interval.messages": "1"})
    with broker:
        assert str(broker.pid) in note.read_text().split()
        assert read_back(broker.bootstrap) == b"first"
        second = BrokerProcess(tmp_path / "second")
        second.data_directory = broker.data_directory
        with pytest.raises(BrokerStartError):
            second.start()
        assert "is used by another process" in second.log()
        broker.kill()
        broker.start()
        assert read_back(broker.bootstrap) == b"first"
        assert broker.stop() == 0
        assert "Traceback" not in broker.log()


def test_large_fetches_and_compaction_work(tmp_path: Path, note: Path) -> None:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    settings = {"log.cleaner.backoff.ms": "100", "log.initial.task.delay.ms": "100"}
    with BrokerProcess(tmp_path / "broker", settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        configs = {
            "cleanup.policy": "compact",
            "segment.bytes": "1048576",
            "min.cleanable.dirty.ratio": "0.01",
        }
        made = admin.create_topics([NewTopic("t", 1, 1, config=configs)])
        made["t"].result(60)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(80):
            producer.produce("t", os.urandom(50_000), key=str(number % 4))
        assert producer.flush(60) == 0
        eventually(lambda: "cleaned" in broker.log() or _was_compacted(broker))
        children = set(note.read_text().split()) - {str(broker.pid)}
        assert children, "compaction runs in a child process, which lacks the calls, too"
        reading = {"group.id": "g", "auto.offset.reset": "earliest", "enable.partition.eof": True}
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, **reading})
        consumer.subscribe(["t"])
        sizes = []
        while (message := consumer.poll(60)) is not None and message.error() is None:
            sizes.append(len(message.value()))
        consumer.close()
        assert sizes
        assert set(sizes) == {50_000}


def _was_compacted(broker: BrokerProcess) -> bool:
    segments = list((broker.data_directory / "t-0").glob("*.log"))
    return sum(each.stat().st_size for each in segments) < 3_000_000


def test_a_cluster_replicates(tmp_path: Path, note: Path) -> None:
    with ClusterProcess(3, 0, tmp_path / "cluster") as cluster:
        assert read_back(cluster.bootstrap) == b"first"
        assert len(note.read_text().split()) >= 3


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "selection",
    [
        pytest.param(name, marks=[pytest.mark.nightly, pytest.mark.slow] if name in LONG else [])
        for name in SELECTIONS
    ],
)
def test_a_selection_of_tests_passes(selection: str, tmp_path: Path) -> None:
    # The names of sockets below `tmp_path` would be too long.
    with TemporaryDirectory(prefix="masked-") as directory:
        words = ["-m", "pytest", "--basetemp", f"{directory}/tests"]
        variables = masked(MACOS, tmp_path, without=["uvloop"])
        done = subprocess.run(
            [sys.executable, *words, *SELECTIONS[selection]],
            cwd=ROOT,
            env={**os.environ, **variables, "KILLS": "3", "CI": ""},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-20_000:]
