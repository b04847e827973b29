"""Data directories and a remote store that Apache Kafka 4.4 and Barnabas use in turn.

The store has the layout of Kafka's LocalTieredStorage. Each program serves what the other one has
copied, copies more, deletes what has expired, and finally the whole topic.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from barnabas.protocol.errors import ErrorCode
from barnabas.runtime.disk import RealDisk
from barnabas.storage.remote.opening import list_clusters, open_remote_storage
from barnabas.testing.broker_process import BrokerProcess
from conformance.tiered_topics import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST_TIERED,
    SECONDS,
    alter,
    consume,
    end_of,
    list_offset,
    local_bases,
    make_tiered_topic,
    offset_at,
    value_of,
)
from jvm.directory_settings import SETTINGS, Broker
from jvm.tiered_kafka import TIERED_SETTINGS, TieredKafka
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# Starts of Kafka take most of the time.
pytestmark = [pytest.mark.conformance, pytest.mark.nightly]

TOPIC = "handed-over"
# Records of each stage, and how many of them a transaction has.
RECORDS, IN_TRANSACTION = 100, 10
# About three segments.
RETENTION_BYTES = 30_000


class SharedTier:
    """Two programs on one data directory and one store; one of them runs."""

    def __init__(self, directory: Path) -> None:
        self.data, self.tier = directory / "data", directory / "tier"
        kafka = TieredKafka(
            directory / "kafka",
            {**SETTINGS, "log.dirs": str(self.data), "rsm.config.dir": str(self.tier)},
        )
        kafka.data_directory = self.data
        self.url = f"file://{self.tier}?layout=kafka-local"
        settings = {**SETTINGS, **TIERED_SETTINGS, "barnabas.remote.storage": self.url}
        ours = BrokerProcess(directory / "ours", settings, ["--data-dir", str(self.data)])
        self.kafka, self.ours = kafka, ours
        self._running: Broker | None = None
        # Offsets and numbers of the committed records, without those that have expired.
        self.kept: list[tuple[int, int]] = []
        # Number of the next record.
        self._next = 0
        # Time of record 0, in ms. Record n has n ms more. Markers of transactions have the time of
        # the broker, which must be before those of all records.
        self._start_ms = int(time.time() * 1000) + 1_000_000

    @property
    def bootstrap(self) -> str:
        assert self._running is not None
        return self._running.bootstrap

    def begin(self, broker: Broker) -> None:
        """Start a broker, and create the topic."""
        self._running = broker.start()
        make_tiered_topic(broker.bootstrap, TOPIC, local_retention_bytes="1")

    def switch(self, end: str, to: Broker) -> None:
        """End the running broker, start the other one, and read everything with it."""
        assert self._running is not None
        getattr(self._running, end)()
        self._running = to.start()
        self.read_all()

    def write(self) -> None:
        """Append records and an aborted transaction; they are only in the tier afterwards."""
        options = {"bootstrap.servers": self.bootstrap, "batch.num.messages": "3"}
        producer = Producer({**options, "transactional.id": "handing-over"})
        producer.init_transactions(SECONDS)
        for _ in range(RECORDS // IN_TRANSACTION):
            for commits in (False, True):
                producer.begin_transaction()
                start = self._next if commits else -IN_TRANSACTION
                for number in range(start, start + IN_TRANSACTION):
                    at = self._start_ms + max(number, 0)
                    producer.produce(TOPIC, value_of(number), partition=0, timestamp=at)
                assert producer.flush(SECONDS) == 0
                if commits:
                    producer.commit_transaction(SECONDS)
                    self._next += IN_TRANSACTION
                else:
                    producer.abort_transaction(SECONDS)
        self._await_local_retention()
        count = len(self.kept) + RECORDS
        self.kept = self._consumed(count)
        assert [number for _, number in self.kept[-RECORDS:]] == list(
            range(self._next - RECORDS, self._next)
        )

    def read_all(self) -> None:
        """Read what is kept, also by time; it is served like by the program before."""
        self._await_local_retention()
        assert self._consumed(len(self.kept)) == self.kept
        offset, number = self.kept[len(self.kept) // 3]
        timestamp = self._start_ms + number
        found = eventually(lambda: self._found_at(timestamp), "no offset is found by time")
        assert found == offset

    def _found_at(self, timestamp: int) -> int | None:
        found = list_offset(self.bootstrap, TOPIC, timestamp)
        # Until the metadata of the segments is read, Kafka answers with an error.
        return found.offset if found.error_code == ErrorCode.NONE else None

    def _consumed(self, count: int) -> list[tuple[int, int]]:
        start = offset_at(self.bootstrap, TOPIC, EARLIEST)
        committed = {"isolation.level": "read_committed"}
        return consume(self.bootstrap, TOPIC, start, count, **committed)

    def _await_local_retention(self) -> None:
        """Wait until all closed segments are only in the tier."""

        def is_done() -> bool:
            last, start = (
                list_offset(self.bootstrap, TOPIC, each) for each in (LATEST_TIERED, EARLIEST_LOCAL)
            )
            # The partition may have no leader shortly after the start of a broker.
            if last.error_code or start.error_code:
                return False
            active = local_bases(self.data, TOPIC)[-1]
            return last.offset + 1 == start.offset == active

        eventually(is_done, "not all closed segments are only in the tier")

    def expire(self) -> None:
        """Let the oldest segments expire, whichever program has copied them."""
        before = self.stored_bases()
        alter(self.bootstrap, TOPIC, retention_bytes=str(RETENTION_BYTES))
        eventually(lambda: offset_at(self.bootstrap, TOPIC, EARLIEST) > before[0])
        eventually(lambda: self.stored_bases()[0] == offset_at(self.bootstrap, TOPIC, EARLIEST))
        alter(self.bootstrap, TOPIC, retention_bytes="-1")
        start = offset_at(self.bootstrap, TOPIC, EARLIEST)
        assert self.stored_bases() == [base for base in before if base >= start]
        self.kept = [each for each in self.kept if each[0] >= start]
        assert self.kept
        assert self._consumed(len(self.kept)) == self.kept

    def stored(self) -> list[Path]:
        """Return all files of the topic in the store."""
        return sorted(self.tier.glob(f"kafka-tiered-storage/{TOPIC}-0-*/*"))

    def stored_bases(self) -> list[int]:
        """Return the base offsets of the stored segments."""
        return [int(path.name[:20]) for path in self.stored() if path.suffix == ".log"]

    def check_listing(self) -> None:
        """Check that a listing of the store has all segments, one after the other."""
        (cluster,) = list_clusters(self.url, RealDisk())
        storage = open_remote_storage(self.url, cluster, RealDisk())
        found = list(storage.list_segments(TOPIC))
        assert [each.segment.start_offset for each in found] == self.stored_bases()
        assert all(each.is_whole for each in found)
        starts = [each.segment.start_offset for each in found[1:]]
        starts.append(offset_at(self.bootstrap, TOPIC, EARLIEST_LOCAL))
        assert [each.segment.end_offset + 1 for each in found] == starts
        assert starts[-1] <= end_of(self.bootstrap, TOPIC)

    def delete(self) -> None:
        """Delete the topic; no file of it remains in the store."""
        assert self.stored()
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([TOPIC])[TOPIC].result(SECONDS)
        eventually(lambda: not self.stored(), lambda: f"files are left: {self.stored()}")

    def close(self) -> None:
        self.ours.close()
        self.kafka.close()


@pytest.fixture
def shared(tmp_path: Path) -> Iterable[SharedTier]:
    made = SharedTier(tmp_path)
    yield made
    made.close()


def test_kafka_continues_with_our_tier_and_barnabas_after_it(shared: SharedTier) -> None:
    shared.begin(shared.ours)
    shared.write()
    shared.check_listing()
    shared.switch("stop", shared.kafka)
    shared.write()
    shared.expire()
    shared.switch("stop", shared.ours)
    shared.check_listing()
    shared.write()
    shared.expire()
    shared.delete()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_barnabas_continues_with_kafkas_tier_and_kafka_after_it(
    shared: SharedTier, end: str
) -> None:
    shared.begin(shared.kafka)
    shared.write()
    shared.switch(end, shared.ours)
    shared.check_listing()
    shared.write()
    shared.switch(end, shared.kafka)
    shared.write()
    shared.expire()
    shared.switch(end, shared.ours)
    shared.write()
    shared.expire()
    shared.switch(end, shared.kafka)
    shared.check_listing()
    shared.delete()
