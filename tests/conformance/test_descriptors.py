"""A broker with few file descriptors refuses connections until descriptors are free.

In this case, the data directories of Apache Kafka go offline, so there is no comparison.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from barnabas import Admin, Consumer, Producer, TopicPartition
from barnabas.client.admin.topics import NewTopic
from barnabas.testing.broker_process import BrokerProcess
from conformance.crowds import LONG_BACKLOG
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 160
_START_LIMITED = (
    "import os, resource, sys;"
    f"resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, {LIMIT}));"
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


class LimitedBroker(BrokerProcess):
    """A broker with at most LIMIT descriptors."""

    def _command(self) -> list[str]:
        python, *words = super()._command()
        return [python, "-c", _START_LIMITED, *words]

    def descriptors(self) -> int:
        """Return the number of open descriptors."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))


def crowd(broker: LimitedBroker) -> list[socket.socket]:
    """Open more connections than the broker has descriptors; they send no request."""
    return [socket.create_connection((broker.host, broker.port), timeout=60) for _ in range(LIMIT)]


def test_a_broker_without_free_descriptors_accepts_again_when_some_are_free(
    tmp_path: Path,
) -> None:
    with LimitedBroker(tmp_path, LONG_BACKLOG) as broker, Producer(broker.bootstrap) as producer:
        producer.send("before", b"1").result()
        others = crowd(broker)
        eventually(lambda: broker.descriptors() >= LIMIT - 40, broker.descriptors)
        assert broker.is_running
        # The existing connection is served, and new logs can be created.
        for name in ("before", "during", "another"):
            producer.send(name, b"2").result()
        assert broker.descriptors() < LIMIT
        for each in others:
            each.close()
        with Admin(broker.bootstrap) as admin:
            admin.create_topics([NewTopic("after", 3, 1)])
            producer.send("after", b"3", partition=2).result()
        assert "No connections are accepted" in broker.log()
        assert "offline" not in broker.log()


def test_logs_that_need_more_files_than_there_are_stay_online(tmp_path: Path) -> None:
    partitions = LIMIT * 2
    with LimitedBroker(tmp_path, LONG_BACKLOG) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topics([NewTopic("many", partitions, 1)])
        with Producer(broker.bootstrap, delivery_timeout_ms=120_000, linger_ms=0) as producer:
            for partition in range(partitions):
                # Write to one partition after the other, because each log needs files.
                producer.send("many", b"%d" % partition, partition=partition).result()
        where = [TopicPartition("many", number) for number in range(partitions)]
        seen: list[bytes] = []
        with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign(where)

            def all_read() -> bool:
                seen.extend(record.value for record in consumer.poll(1000))
                return len(seen) >= partitions

            eventually(all_read, lambda: f"{len(seen)} of {partitions}")
        assert sorted(seen, key=int) == [b"%d" % number for number in range(partitions)]
        assert broker.is_running
        assert "offline" not in broker.log()
        assert broker.stop() == 0
