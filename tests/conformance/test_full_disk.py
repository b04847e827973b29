"""Full disks: a limit for the file sizes of the broker, and small file systems."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.log_dirs import DescribeLogDirsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from barnabas.record.builder import BatchBuilder
from barnabas.testing.broker_process import BrokerProcess, BrokerStartError
from conformance.raw_client import RawClient
from selection import nightly_unless
from unit.server.simulated_broker import produce_request
from waiting import eventually, eventually_equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPICS = ["a", "b"]
LIMIT_BYTES = 300_000
BATCH_BYTES = 50_000
WAIT_S = 60.0
SMALL_BYTES = 2 << 20


def produce(client: RawClient, topic: str, value: bytes) -> tuple[int, int]:
    """Return error code and base offset."""
    builder = BatchBuilder()
    builder.append(int(time.time() * 1000), None, value)
    response = client.ask(produce_request(topic, bytes(builder.build())), 9)
    partition = response.responses[0].partition_responses[0]
    return partition.error_code, partition.base_offset


def make_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in TOPICS]).values():
        made.result(WAIT_S)


def directories(client: RawClient) -> dict[str, tuple[int, list[str]]]:
    """Return error code and topics of each data directory."""
    results = client.ask(DescribeLogDirsRequest(topics=None), 4).results
    return {each.log_dir: (each.error_code, [t.name for t in each.topics]) for each in results}


def leader(client: RawClient, topic: str) -> int:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    return client.ask(request, 8).topics[0].partitions[0].leader_id


def fill(client: RawClient, topic: str) -> int:
    """Write until the disk is full, and return the number of acknowledged batches."""
    for count in range(SMALL_BYTES // BATCH_BYTES):
        error, _ = produce(client, topic, bytes(BATCH_BYTES))
        if error:
            assert error == ErrorCode.KAFKA_STORAGE_ERROR
            return count
    raise AssertionError("the disk was never full")


def test_a_full_disk_takes_one_directory_offline_until_a_restart_with_space(
    tmp_path: Path,
) -> None:
    broker = BrokerProcess(tmp_path)
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    # In the format of --data-dir.
    broker.data_directory = f"{one},{two}"
    with broker:
        make_topics(broker.bootstrap)
        client = RawClient(broker.bootstrap)
        (lost,) = directories(client)[two][1]
        (kept,) = directories(client)[one][1]
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (LIMIT_BYTES, LIMIT_BYTES))
        acknowledged = fill(client, lost)
        assert acknowledged >= 3
        assert produce(client, lost, b"x")[0] == ErrorCode.KAFKA_STORAGE_ERROR
        assert produce(client, kept, b"x") == (0, 0)
        eventually_equal(lambda: directories(client)[two][0], ErrorCode.KAFKA_STORAGE_ERROR)
        eventually_equal(lambda: leader(client, lost), -1)
        line = next(line for line in broker.log().splitlines() if "offline" in line)
        assert f"Data directory {two} failed" in line
        assert "ulimit -f" in line
        assert "start the broker again" in line
        client.close()
        broker.restart()
        client = RawClient(broker.bootstrap)
        assert produce(client, lost, b"x") == (0, acknowledged)
        assert {error for error, _ in directories(client).values()} == {0}
        client.close()


def test_a_full_disk_stops_a_broker_with_one_directory(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        make_topics(broker.bootstrap)
        client = RawClient(broker.bootstrap)
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (LIMIT_BYTES, LIMIT_BYTES))
        acknowledged = fill(client, "a")
        client.close()
        eventually(lambda: not broker.is_running)
        assert f"Data directory {broker.data_directory} failed" in broker.log()
        broker.start()
        client = RawClient(broker.bootstrap)
        assert produce(client, "a", b"x") == (0, acknowledged)
        client.close()


@pytest.mark.parametrize("room_bytes", nightly_unless((800).__eq__, [30, 800, 3_000]))
def test_a_full_metadata_disk_stops_the_node_with_a_message_without_traceback(
    tmp_path: Path, room_bytes: int
) -> None:
    """This holds for any amount of free space: the work in progress in that turn differs."""
    with BrokerProcess(tmp_path) as broker:
        make_topics(broker.bootstrap)
        client, maker = RawClient(broker.bootstrap), RawClient(broker.bootstrap)
        metadata_log = broker.data_directory / "__cluster_metadata-0" / f"{0:020}.log"
        limit = metadata_log.stat().st_size + room_bytes
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (limit, limit))
        for number in range(100):
            topic = CreatableTopic(
                name=f"t{number}",
                num_partitions=2,
                replication_factor=1,
                assignments=[],
                configs=[],
            )
            try:
                maker.ask(CreateTopicsRequest(topics=[topic], timeout_ms=3000), 5)
                produce(client, "a", b"x")
            except (AssertionError, OSError):
                break
        assert broker.wait(WAIT_S) == 1
        client.close()
        maker.close()
        log = broker.log()
        assert "Traceback" not in log
        last = log.splitlines()[-1]
        assert last.startswith(f"barnabas: Data directory {broker.data_directory} failed: ")
        assert "ulimit -f" in last
        broker.start()


def test_a_producer_that_retries_gets_the_storage_error(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        make_topics(broker.bootstrap)
        settings = {"message.send.max.retries": 2, "retry.backoff.ms": 100, "linger.ms": 0}
        producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
        outcomes: list[KafkaError | None] = []
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (LIMIT_BYTES, LIMIT_BYTES))
        for _ in range(2 * LIMIT_BYTES // BATCH_BYTES):
            producer.produce(
                "a", bytes(BATCH_BYTES), on_delivery=lambda error, _: outcomes.append(error)
            )
            producer.flush(WAIT_S)
            if outcomes[-1] is not None:
                break
        assert outcomes[-1] is not None
        assert outcomes[-1].code() == KafkaError.KAFKA_STORAGE_ERROR
        assert broker.wait(WAIT_S) == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    directory = tmp_path / "small"
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "tmpfs", str(directory)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a file system")
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


def test_a_broker_on_a_full_disk_reports_the_missing_bytes_and_starts_with_them(
    tmp_path: Path, small_disk: Path
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(SMALL_BYTES // 2))
    broker = BrokerProcess(tmp_path / "broker")
    broker.data_directory = small_disk / "data"
    with broker:
        make_topics(broker.bootstrap)
        client = RawClient(broker.bootstrap)
        acknowledged = fill(client, "a")
        assert acknowledged >= 3
        client.close()
        assert broker.wait(WAIT_S) == 1
        with pytest.raises(BrokerStartError):
            broker.start()
        last = broker.log().splitlines()[-1]
        assert last.startswith(f"barnabas: Data directory {broker.data_directory} failed: ")
        found = re.search(r"make room for at least (\d+) bytes", last)
        assert found is not None
        os.truncate(ballast, ballast.stat().st_size - int(found[1]))
        broker.start()
        client = RawClient(broker.bootstrap)
        assert produce(client, "a", b"x") == (0, acknowledged)
        client.close()


def test_formatting_on_a_full_disk_reports_the_missing_bytes(
    tmp_path: Path, small_disk: Path
) -> None:
    (small_disk / "ballast").write_bytes(bytes(SMALL_BYTES))
    broker = BrokerProcess(tmp_path / "broker")
    broker.data_directory = small_disk
    with pytest.raises(BrokerStartError):
        broker.start()
    (line,) = broker.log().splitlines()
    assert f"Data directory {small_disk} failed" in line
    assert "make room for at least 131072 bytes" in line
