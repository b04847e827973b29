"""A disk that takes no more, for real: the limit of file sizes of the broker's process."""

from __future__ import annotations

import resource
import time
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.record.builder import BatchBuilder
from barnabas.testing.broker_process import BrokerProcess
from conformance.raw_client import RawClient
from unit.server.simulated_broker import produce_request

if TYPE_CHECKING:
    from pathlib import Path

TOPICS = ["a", "b"]
LIMIT_BYTES = 300_000
BATCH_BYTES = 50_000
WAIT_S = 20.0


def produce(client: RawClient, topic: str, value: bytes) -> tuple[int, int]:
    """Error code and base offset."""
    builder = BatchBuilder()
    builder.append(int(time.time() * 1000), None, value)
    response = client.ask(produce_request(topic, bytes(builder.build())), 9)
    answer = response.responses[0].partition_responses[0]
    return answer.error_code, answer.base_offset


def make_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in TOPICS]).values():
        made.result(WAIT_S)


def directories(client: RawClient) -> dict[str, tuple[int, list[str]]]:
    """Error code and topics of each data directory."""
    results = client.ask(DescribeLogDirsRequest(topics=None), 4).results
    return {each.log_dir: (each.error_code, [t.name for t in each.topics]) for each in results}


def leader(client: RawClient, topic: str) -> int:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    return client.ask(request, 8).topics[0].partitions[0].leader_id


def fill(client: RawClient, topic: str) -> int:
    """Write until the disk takes no more; how many batches were acknowledged."""
    for count in range(2 * LIMIT_BYTES // BATCH_BYTES):
        error, _ = produce(client, topic, bytes(BATCH_BYTES))
        if error:
            assert error == ErrorCode.KAFKA_STORAGE_ERROR
            return count
    raise AssertionError("the disk took everything")


def test_a_full_disk_takes_one_directory_and_a_restart_with_room_brings_it_back(
    tmp_path: Path,
) -> None:
    broker = BrokerProcess(tmp_path)
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    # As --data-dir takes them.
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
        assert directories(client)[two][0] == ErrorCode.KAFKA_STORAGE_ERROR
        deadline = time.monotonic() + WAIT_S
        while leader(client, lost) != -1:
            assert time.monotonic() < deadline
        complaint = next(line for line in broker.log().splitlines() if "offline" in line)
        assert f"Data directory {two} failed" in complaint
        assert "ulimit -f" in complaint
        assert "start the broker again" in complaint
        client.close()
        broker.restart()
        client = RawClient(broker.bootstrap)
        assert produce(client, lost, b"x") == (0, acknowledged)
        assert {error for error, _ in directories(client).values()} == {0}
        client.close()


def test_a_full_disk_stops_a_broker_that_has_no_other(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        make_topics(broker.bootstrap)
        client = RawClient(broker.bootstrap)
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (LIMIT_BYTES, LIMIT_BYTES))
        acknowledged = 0
        while acknowledged < 2 * LIMIT_BYTES // BATCH_BYTES:
            try:
                error, _ = produce(client, "a", bytes(BATCH_BYTES))
            except (AssertionError, OSError):
                break
            if error:
                assert error == ErrorCode.KAFKA_STORAGE_ERROR
                break
            acknowledged += 1
        client.close()
        deadline = time.monotonic() + WAIT_S
        while broker.is_running:
            assert time.monotonic() < deadline
        assert f"Data directory {broker.data_directory} failed" in broker.log()
        broker.start()
        client = RawClient(broker.bootstrap)
        assert produce(client, "a", b"x") == (0, acknowledged)
        client.close()
