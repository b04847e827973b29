"""A consumer in a classic group keeps polling while its broker changes between Barnabas and Kafka.

Both brokers use one directory and one port. The member, generation and assignment of the group are
in the directory. So the consumer stays in its group without a rebalance, continues from its
commits, and reads every record.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from jvm.alternating_cluster import QUICK_RETRIES, AlternatingCluster, Writer
from jvm.directory_contents import create_topics
from jvm.directory_requests import request_router
from jvm.directory_settings import SETTINGS
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.conformance

TOPIC = "live"
GROUP = "watchers"
PARTITIONS = 3
WAIT_S = 180.0


class Member:
    """A consumer that reads and commits until it is closed, and records faults.

    Args:
        bootstrap: the address of the broker.
    """

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "group.protocol": "classic",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                # Longer than any restart, even with a slow start of Java.
                "session.timeout.ms": 600_000,
                "max.poll.interval.ms": 600_000,
                "heartbeat.interval.ms": 500,
                **QUICK_RETRIES,
            }
        )
        self.assigned = 0
        # The delivered values by partition and offset.
        self.delivered: dict[int, dict[int, bytes]] = {each: {} for each in range(PARTITIONS)}
        self.repeated = 0
        # The acknowledged committed offsets by partition.
        self.committed = dict.fromkeys(range(PARTITIONS), 0)
        self.faults: list[str] = []
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        return sum(map(len, self.delivered.values()))

    def await_count(self, count: int) -> None:
        eventually(
            lambda: self.count >= count,
            lambda: f"{self.count} of {count}, {self.faults[:5]}",
            WAIT_S,
        )

    def close(self) -> None:
        self._is_stopped.set()
        self._thread.join()

    def _run(self) -> None:
        self._consumer.subscribe([TOPIC], on_assign=self._on_assign)
        while not self._is_stopped.is_set():
            for message in self._consumer.consume(200, 0.05):
                if message.error() is None:
                    self._record(message.partition(), message.offset(), message.value())
            self._commit()
        self._consumer.close()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned += 1
        if self.assigned == 1:
            for each in partitions:
                each.offset = 0
        consumer.assign(partitions)

    def _record(self, partition: int, offset: int, value: bytes) -> None:
        delivered = self.delivered[partition]
        if offset < self.committed[partition]:
            self.faults.append(f"{partition}: {offset} is committed")
        if offset > len(delivered):
            self.faults.append(f"{partition}: {offset} follows {len(delivered)} records")
        self.repeated += offset in delivered
        delivered[offset] = value

    def _commit(self) -> None:
        unsaved = [
            TopicPartition(TOPIC, partition, len(delivered))
            for partition, delivered in self.delivered.items()
            if len(delivered) > self.committed[partition]
        ]
        if not unsaved:
            return
        # A commit fails while no broker runs. The next commit contains the same offsets.
        with suppress(KafkaException):
            for each in self._consumer.commit(offsets=unsaved, asynchronous=False):
                if each.error is None:
                    self.committed[each.partition] = each.offset


def test_a_member_stays_in_its_group_while_the_node_is_replaced(
    kafka_jars: Callable[[str], str], tmp_path: Path
) -> None:
    turns = AlternatingCluster(1, tmp_path, SETTINGS)
    member = None
    try:
        turns.start(turns.ours)
        with request_router(turns.bootstrap) as send:
            create_topics(send, {TOPIC: {}}, 1, PARTITIONS)
        writer = Writer(turns.bootstrap, TOPIC, PARTITIONS)
        member = Member(turns.bootstrap)
        for end in ("stop", "kill"):
            for to in (turns.kafkas, turns.ours):
                member.await_count(member.count + 300)
                getattr(turns, end)()
                turns.start(to)
        member.await_count(member.count + 300)
        written = writer.close()
        member.await_count(len(written))
    finally:
        if member is not None:
            member.close()
        turns.close()
    assert not member.faults
    assert member.assigned == 1
    assert member.repeated == 0
    assert {
        (partition, offset): value
        for partition, delivered in member.delivered.items()
        for offset, value in delivered.items()
    } == {(each.partition, each.offset): each.value for each in written}
