"""The broker process: start, stop, kill, refusals to start."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.testing.broker_process import BrokerProcess, BrokerStartError
from group_offsets import commit_offsets, find_committed
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

WAIT_S = 90.0


def write(broker: BrokerProcess, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(WAIT_S) == 0


def read(broker: BrokerProcess, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []

    def has_read() -> bool:
        found = consumer.consume(count - len(values), 0.5)
        values.extend(message.value() for message in found if message.error() is None)
        return len(values) >= count

    eventually(has_read, lambda: f"{len(values)} of {count}")
    consumer.close()
    return values


def start(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "barnabas.cli.main", "start", "--listen", "127.0.0.1:0", *words],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


@pytest.mark.parametrize("end", [BrokerProcess.stop, BrokerProcess.kill])
def test_acknowledged_records_and_committed_offsets_survive_the_process(
    broker_process: BrokerProcess, end: Callable[[BrokerProcess], int]
) -> None:
    values = [b"%d" % number for number in range(1000)]
    write(broker_process, "kept", values)
    consumer = Consumer(
        {
            "bootstrap.servers": broker_process.bootstrap,
            "group.id": "g",
            "enable.auto.commit": False,
        }
    )
    commit_offsets(consumer, TopicPartition("kept", 0, 321))
    port = broker_process.port
    end(broker_process)
    broker_process.start()
    assert broker_process.port == port
    assert read(broker_process, "kept", 1000) == values
    (found,) = find_committed(consumer, TopicPartition("kept", 0))
    assert found.offset == 321
    consumer.close()
    write(broker_process, "kept", [b"more"])
    assert read(broker_process, "kept", 1001)[-1] == b"more"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_clean_stop_leaves_its_marker(
    broker_process: BrokerProcess, number: signal.Signals
) -> None:
    write(broker_process, "some", [b"v"] * 100)
    process = broker_process._process
    assert process is not None
    process.send_signal(number)
    assert process.wait(WAIT_S) == 0
    assert (broker_process.data_directory / ".kafka_cleanshutdown").exists()


def test_a_data_directory_serves_one_process_at_a_time(broker_process: BrokerProcess) -> None:
    done = start("--data-dir", str(broker_process.data_directory))
    assert done.returncode == 1
    assert "is used by another process" in done.stderr
    assert done.stdout == ""


def test_a_data_directory_of_another_node_is_refused(broker_process: BrokerProcess) -> None:
    broker_process.stop()
    done = start("--data-dir", str(broker_process.data_directory), "--set", "node.id=2")
    assert done.returncode == 1
    assert "belongs to node 1" in done.stderr


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("num.partitions=none", ["num.partitions", "'none'", "int"]),
        ("num.partitions=0", ["num.partitions", "'0'", "at least 1"]),
        ("listeners=nonsense", ["listeners", "'nonsense'", "NAME://HOST:PORT"]),
        ("listeners=PLAINTEXT://0.0.0.0:0", ["advertised.listeners"]),
        ("controller.quorum.voters=7@127.0.0.1:1", ["controller.quorum.voters", "7@127.0.0.1:1"]),
    ],
)
def test_the_error_of_an_invalid_value_names_key_value_and_range(
    tmp_path: Path, setting: str, words: list[str]
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(setting + "\n")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "barnabas.cli.main",
            "start",
            str(file),
            "--data-dir",
            str(tmp_path / "data"),
        ],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 1
    assert all(word in done.stderr for word in words), done.stderr
    assert not (tmp_path / "data").exists()


def test_an_unknown_key_is_a_warning(
    make_broker: Callable[[Mapping[str, str]], BrokerProcess],
) -> None:
    broker = make_broker({"no.such.key": "1"}).start()
    assert "no.such.key" in broker.log()


def test_broker_settings_apply_to_topics(
    make_broker: Callable[[Mapping[str, str]], BrokerProcess],
) -> None:
    broker = make_broker({"num.partitions": "3", "auto.create.topics.enable": "true"}).start()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("made", b"v")
    assert producer.flush(WAIT_S) == 0
    assert len(producer.list_topics("made", WAIT_S).topics["made"].partitions) == 3


def test_a_port_in_use_is_an_error(broker_process: BrokerProcess, tmp_path: Path) -> None:
    other = BrokerProcess(tmp_path / "other")
    other.port = broker_process.port
    with pytest.raises(BrokerStartError, match=r"in use.*--listen"):
        other.start()


def test_a_file_in_the_place_of_the_data_directory_is_an_error_with_a_remedy(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        done = start("--data-dir", str(path))
        assert done.returncode == 1
        assert str(path) in done.stderr
        assert "--data-dir" in done.stderr


def test_a_start_without_assertions_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-O",
            "-m",
            "barnabas.cli.main",
            "start",
            "--data-dir",
            str(tmp_path / "data"),
        ],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 1
    assert "-O" in done.stderr


def test_help_has_examples() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "barnabas.cli.main", "start", "--help"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0
    assert "barnabas start server.properties" in done.stdout
