"""Data directories that Apache Kafka 4.4 and Barnabas open in turn; each serves the existing data.

`directory_contents` lists the content of a directory: topics with configs, configs of brokers,
quotas, groups with offsets, idempotent producers, all compressions, several segments, compacted and
trimmed logs, in two log directories. Brokers are stopped cleanly, or killed with a torn tail.
"""

from __future__ import annotations

import json
import re
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from barnabas.storage.topic_partition import LARGEST_TIMESTAMPS
from barnabas.testing.broker_process import BrokerProcess
from jvm.directory_contents import (
    COMPACTED,
    EXPLICIT,
    GROUP,
    OFFSETS_TOPIC,
    PARTITIONS,
    PLAIN,
    ROLLED,
    TRIMMED,
    Contents,
)
from jvm.directory_dump import METADATA, Dump
from jvm.directory_settings import SETTINGS, Broker, verify
from jvm.kafka_process import KafkaProcess
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

pytestmark = pytest.mark.conformance


class AlternatingBrokers:
    """Two brokers on one pair of directories; one of them runs."""

    def __init__(self, directory: Path) -> None:
        self.directories = [directory / "data", directory / "more"]
        paths = ",".join(map(str, self.directories))
        self.ours = BrokerProcess(directory, SETTINGS, ["--data-dir", paths])
        self.kafka = KafkaProcess(directory, {**SETTINGS, "log.dirs": paths})
        self._running: Broker | None = None
        self._contents: Contents | None = None

    def begin(self, broker: Broker) -> None:
        """Start a broker, and fill the directories."""
        self._running = broker.start()
        self._contents = Contents(broker.bootstrap)
        self._contents.fill()

    def switch(self, end: str, to: Broker) -> None:
        """End the running broker, start the other one, and check that it serves all data."""
        running, contents = self._running, self._contents
        assert running is not None
        assert contents is not None
        contents.await_periodic_work(self.directories)
        before = contents.describe_contents()
        getattr(running, end)()
        if end == "kill":
            contents.append_torn_batch(self.directories)
        self._running = to.start()
        contents.connect(to.bootstrap)
        found = contents.describe_contents()
        for what, was in before.items():
            assert found[what] == was, what
        contents.check_producer()
        contents.write()

    def close(self) -> None:
        self.ours.close()
        self.kafka.close()


@pytest.fixture
def brokers(tmp_path: Path) -> Iterable[AlternatingBrokers]:
    made = AlternatingBrokers(tmp_path)
    yield made
    made.close()


@pytest.mark.nightly
def test_kafka_continues_in_a_barnabas_directory_and_barnabas_after_it(
    brokers: AlternatingBrokers,
) -> None:
    brokers.begin(brokers.ours)
    brokers.switch("kill", brokers.kafka)
    brokers.switch("stop", brokers.ours)
    brokers.switch("stop", brokers.kafka)
    brokers.switch("kill", brokers.ours)
    brokers.ours.stop()
    verify(brokers.directories)


def test_barnabas_continues_in_a_kafka_directory_and_kafka_after_it(
    brokers: AlternatingBrokers,
) -> None:
    brokers.begin(brokers.kafka)
    brokers.switch("stop", brokers.ours)
    brokers.ours.stop()
    ours = kinds_of_files(brokers.directories)
    brokers.ours.start()
    brokers.switch("kill", brokers.kafka)
    brokers.kafka.stop()
    verify(brokers.directories)
    assert ours == kinds_of_files(brokers.directories)


def kinds_of_files(directories: Iterable[Path]) -> dict[str, str]:
    """Return the format of each file by its directory, without numbers and ids."""
    found: dict[str, str] = {}
    for directory in directories:
        for path in directory.rglob("*"):
            # Kafka removes its lock file. Deleted files disappear a minute later, and unfinished
            # files of the cleaner at the next start.
            within = str(path.relative_to(directory))
            is_temporary = path.name == ".lock" or "delete" in within or path.suffix == ".cleaned"
            is_ours_only = path.name == LARGEST_TIMESTAMPS
            if is_temporary or is_ours_only or not path.is_file():
                continue
            folder = "" if path.parent == directory else re.sub(r"-\d+$", "", path.parent.name)
            name = re.sub(r"\d{10,20}", "N", path.name)
            text = "" if "N" in name else shape(path.read_text())
            # If some checkpoints of a kind are empty, those with lines show the format.
            where = f"{folder}/{name}"
            found[where] = max(found.get(where, ""), text, key=len)
    return found


def shape(text: str) -> str:
    if text.startswith("{"):
        return ",".join(sorted(json.loads(text)))
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    if lines and "=" in lines[0]:
        return ",".join(sorted(line.split("=")[0] for line in lines))
    if text.startswith("version: 0"):
        return re.sub(r"topic_id: \S{22}", "topic_id: ID", text)
    # A checkpoint: its version, and the numbers of words in its lines.
    return f"{lines[:1]} { ({len(line.split()) for line in lines[2:]}) }"


def newest_snapshot(data: Path) -> bytes:
    """Return the newest metadata snapshot; older ones may be deleted meanwhile."""
    found = sorted((data / METADATA).glob("*.checkpoint"))
    with suppress(FileNotFoundError):
        return found[-1].read_bytes() if found else b""
    return b""


def test_kafkas_dump_tool_reads_every_file_that_we_write(
    tmp_path: Path, kafka_tools: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    settings = {**SETTINGS, "metadata.log.max.record.bytes.between.snapshots": "500"}
    with BrokerProcess(tmp_path, settings) as ours:
        contents = Contents(ours.bootstrap)
        contents.fill()
        contents.await_periodic_work([ours.data_directory])
        data = ours.data_directory
        eventually(lambda: TRIMMED.encode() in newest_snapshot(data), f"no snapshot has {TRIMMED}")
        assert ours.stop() == 0

    dump = Dump(kafka_tools)
    partitions = [
        data / f"{topic}-{index}" for topic, count in PARTITIONS.items() for index in range(count)
    ]
    assert len(list((data / f"{ROLLED}-0").glob("*.log"))) > 2
    assert len(list((data / f"{COMPACTED}-0").glob("*.log"))) > 1
    text = dump.check_logs(partitions, "--print-data-log")
    compressions = {"none", "gzip", "snappy", "lz4", "zstd"}
    assert set(re.findall(r"compresscodec: (\w+)", text)) == compressions
    assert text.count("payload: idempotent") == 4
    assert "producerId: 424242 producerEpoch: 3" in dump.producers(partitions)
    text = dump(data.glob(f"{OFFSETS_TOPIC}-*/*.log"), "--offsets-decoder")
    for group in (GROUP, EXPLICIT):
        assert f'"group":"{group}","topic":"{PLAIN}","partition":0' in text
    assert '"metadata":"here"' in text
    log, snapshot = dump.metadata(data)
    assert f'"name":"{TRIMMED}"' in log
    assert '"type":"CLIENT_QUOTA_RECORD"' in log
    assert f'"name":"{TRIMMED}"' in snapshot
