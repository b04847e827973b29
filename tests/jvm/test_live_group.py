"""A consumer in a classic group that polls while the node under it is Barnabas, then Apache Kafka,
then Barnabas again, on one directory and one port.

The group's member, generation and assignment are in the directory: the consumer stays in its group
without a rebalance, goes on from its commits, and has every record.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from jvm.cluster_turns import IMPATIENT, ClusterTurns, Writer
from jvm.directory_asking import asking
from jvm.directory_contents import create_topics
from jvm.test_directories import SETTINGS
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
    """Consumes and commits, as long as it is open; notes where it went wrong.

    Args:
        bootstrap: where.
    """

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "group.protocol": "classic",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                # No node stays away for so long, however slowly Java starts.
                "session.timeout.ms": 600_000,
                "max.poll.interval.ms": 600_000,
                "heartbeat.interval.ms": 500,
                **IMPATIENT,
            }
        )
        self.assigned = 0
        # By partition the value of each offset that was delivered.
        self.delivered: dict[int, dict[int, bytes]] = {each: {} for each in range(PARTITIONS)}
        self.repeated = 0
        # Committed offsets by partition, as the coordinator reported them.
        self.committed = dict.fromkeys(range(PARTITIONS), 0)
        self.wrong: list[str] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        return sum(map(len, self.delivered.values()))

    def await_count(self, count: int) -> None:
        eventually(
            lambda: self.count >= count,
            lambda: f"{self.count} of {count}, {self.wrong[:5]}",
            WAIT_S,
        )

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        self._consumer.subscribe([TOPIC], on_assign=self._on_assign)
        while not self._is_over.is_set():
            for message in self._consumer.consume(200, 0.05):
                if message.error() is None:
                    self._take(message.partition(), message.offset(), message.value())
            self._commit()
        self._consumer.close()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned += 1
        if self.assigned == 1:
            for each in partitions:
                each.offset = 0
        consumer.assign(partitions)

    def _take(self, partition: int, offset: int, value: bytes) -> None:
        had = self.delivered[partition]
        if offset < self.committed[partition]:
            self.wrong.append(f"{partition}: {offset} is committed")
        if offset > len(had):
            self.wrong.append(f"{partition}: {offset} came behind {len(had)} records")
        self.repeated += offset in had
        had[offset] = value

    def _commit(self) -> None:
        wanted = [
            TopicPartition(TOPIC, partition, len(had))
            for partition, had in self.delivered.items()
            if len(had) > self.committed[partition]
        ]
        if not wanted:
            return
        # While no broker is there it fails, and the next one has all that this one would have.
        with suppress(KafkaException):
            for each in self._consumer.commit(offsets=wanted, asynchronous=False):
                if each.error is None:
                    self.committed[each.partition] = each.offset


def test_a_member_stays_in_its_group_while_the_node_is_replaced(
    kafka_jars: Callable[[str], str], tmp_path: Path
) -> None:
    turns = ClusterTurns(1, tmp_path, SETTINGS)
    member = None
    try:
        turns.start(turns.ours)
        with asking(turns.bootstrap) as ask:
            create_topics(ask, {TOPIC: {}}, 1, PARTITIONS)
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
    assert not member.wrong
    assert member.assigned == 1
    assert member.repeated == 0
    assert {
        (partition, offset): value
        for partition, had in member.delivered.items()
        for offset, value in had.items()
    } == {(each.partition, each.offset): each.value for each in written}
