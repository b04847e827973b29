"""Tiered topics with a directory as the remote tier (KIP-405): one broker, and three brokers."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas.storage.remote.segment_objects import TOPIC_FILE
from barnabas.testing.broker_process import BrokerProcess
from barnabas.testing.cluster_process import ClusterProcess
from conformance.tiered_topics import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST_TIERED,
    alter,
    await_all_copied,
    consume,
    end_of,
    list_offset,
    local_bases,
    make_tiered_topic,
    offset_at,
    produce,
    stored_bases,
    stored_objects,
    tier_settings,
    value_of,
)
from waiting import eventually, eventually_equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECONDS = 60.0
RECORDS = 150

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tier")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, tier: Path) -> Iterator[BrokerProcess]:
    """A broker with a tier; each test leaves it running."""
    directory = tmp_path_factory.mktemp("broker")
    # Copies of killed brokers are removed soon.
    settings = tier_settings(tier) | {"barnabas.remote.orphan.age.ms": "3000"}
    with BrokerProcess(directory, settings) as made:
        yield made


@pytest.fixture
def topic() -> str:
    return f"tiered-{next(_numbers)}"


def numbered(start: int, end: int) -> list[tuple[int, int]]:
    """Return offset and number of records whose number is their offset."""
    return [(number, number) for number in range(start, end)]


def await_local_retention(broker: BrokerProcess, topic: str) -> int:
    """Wait until all copied segments are deleted locally; return the earliest local offset."""
    last = await_all_copied(broker.bootstrap, topic, broker.data_directory)
    eventually_equal(lambda: offset_at(broker.bootstrap, topic, EARLIEST_LOCAL), last + 1, SECONDS)
    return last + 1


def test_closed_segments_are_read_from_the_tier_after_local_retention(
    broker: BrokerProcess, tier: Path, topic: str
) -> None:
    make_tiered_topic(broker.bootstrap, topic, local_retention_bytes="1")
    produce(broker.bootstrap, topic, range(RECORDS))
    local_start = await_local_retention(broker, topic)
    assert local_start > RECORDS // 2
    assert offset_at(broker.bootstrap, topic, EARLIEST) == 0
    eventually_equal(lambda: local_bases(broker.data_directory, topic), [local_start])
    bases = stored_bases(tier, topic)
    assert bases[0] == 0
    assert len(bases) == len(set(bases))
    assert consume(broker.bootstrap, topic, 0, RECORDS) == numbered(0, RECORDS)
    assert consume(broker.bootstrap, topic, 7, 20) == numbered(7, 27)


def test_times_are_found_in_the_tier(broker: BrokerProcess, topic: str) -> None:
    make_tiered_topic(broker.bootstrap, topic, local_retention_bytes="1")
    start_ms = int(time.time() * 1000) - 1_000_000
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": "3"})
    for number in range(RECORDS):
        producer.produce(topic, value_of(number), partition=0, timestamp=start_ms + number)
        producer.poll(0)
    assert producer.flush(SECONDS) == 0
    await_local_retention(broker, topic)
    for number in (0, 1, 31, 77, RECORDS - 1):
        found = list_offset(broker.bootstrap, topic, start_ms + number)
        assert (found.error_code, found.offset, found.timestamp) == (0, number, start_ms + number)
    assert offset_at(broker.bootstrap, topic, start_ms + RECORDS) == -1


def test_total_retention_deletes_segments_of_the_tier(
    broker: BrokerProcess, tier: Path, topic: str
) -> None:
    make_tiered_topic(broker.bootstrap, topic, local_retention_bytes="1")
    produce(broker.bootstrap, topic, range(RECORDS))
    await_local_retention(broker, topic)
    before = stored_bases(tier, topic)
    alter(broker.bootstrap, topic, retention_bytes="50000")
    eventually(lambda: offset_at(broker.bootstrap, topic, EARLIEST) > 0, "nothing has expired")
    first = offset_at(broker.bootstrap, topic, EARLIEST)
    assert first in before
    eventually_equal(lambda: stored_bases(tier, topic), [base for base in before if base >= first])
    assert consume(broker.bootstrap, topic, first, RECORDS - first) == numbered(first, RECORDS)


def test_deleted_records_leave_the_tier(broker: BrokerProcess, tier: Path, topic: str) -> None:
    make_tiered_topic(broker.bootstrap, topic, local_retention_bytes="1")
    produce(broker.bootstrap, topic, range(RECORDS))
    await_local_retention(broker, topic)
    bases = stored_bases(tier, topic)
    middle = bases[len(bases) // 2]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    where = TopicPartition(topic, 0, middle + 1)
    (deleted,) = admin.delete_records([where]).values()
    assert deleted.result(SECONDS).low_watermark == middle + 1
    assert offset_at(broker.bootstrap, topic, EARLIEST) == middle + 1
    eventually_equal(lambda: stored_bases(tier, topic), [base for base in bases if base >= middle])
    rest = RECORDS - middle - 1
    assert consume(broker.bootstrap, topic, middle + 1, rest) == numbered(middle + 1, RECORDS)


def test_aborted_records_in_the_tier_are_not_read_by_committed_readers(
    broker: BrokerProcess, topic: str
) -> None:
    make_tiered_topic(broker.bootstrap, topic, local_retention_bytes="1")
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": topic,
            "batch.num.messages": "3",
        }
    )
    producer.init_transactions(SECONDS)
    committed: list[int] = []
    for transaction in range(8):
        producer.begin_transaction()
        numbers = range(transaction * 15, transaction * 15 + 15)
        for number in numbers:
            producer.produce(topic, value_of(number), partition=0)
        if transaction % 2:
            # Otherwise, records that were not sent yet would not be aborted in the log.
            assert producer.flush(SECONDS) == 0
            producer.abort_transaction(SECONDS)
        else:
            producer.commit_transaction(SECONDS)
            committed += numbers
    produce(broker.bootstrap, topic, range(1_000, 1_015))
    await_local_retention(broker, topic)
    wanted = [*committed, *range(1_000, 1_015)]
    found = consume(
        broker.bootstrap, topic, 0, len(wanted), **{"isolation.level": "read_committed"}
    )
    assert [number for _, number in found] == wanted


def test_a_restart_keeps_both_tiers(broker: BrokerProcess, topic: str) -> None:
    make_tiered_topic(broker.bootstrap, topic, local_retention_bytes="1")
    produce(broker.bootstrap, topic, range(RECORDS))
    local_start = await_local_retention(broker, topic)
    broker.restart()
    assert offset_at(broker.bootstrap, topic, EARLIEST) == 0
    assert offset_at(broker.bootstrap, topic, EARLIEST_LOCAL) == local_start
    assert consume(broker.bootstrap, topic, 0, RECORDS) == numbered(0, RECORDS)
    eventually_equal(
        lambda: offset_at(broker.bootstrap, topic, LATEST_TIERED), local_start - 1, SECONDS
    )
    produce(broker.bootstrap, topic, range(RECORDS, RECORDS + 50))
    assert await_local_retention(broker, topic) > local_start
    assert consume(broker.bootstrap, topic, 0, RECORDS + 50) == numbered(0, RECORDS + 50)


def test_kills_lose_nothing_and_leave_no_garbage(
    broker: BrokerProcess, tier: Path, topic: str
) -> None:
    make_tiered_topic(broker.bootstrap, topic, local_retention_bytes="1")
    sent = 0
    for _ in range(4):
        produce(broker.bootstrap, topic, range(sent, sent + 60))
        sent += 60
        # Copies and deletions are in progress.
        broker.kill()
        broker.start()
    produce(broker.bootstrap, topic, range(sent, sent + 20))
    sent += 20
    assert end_of(broker.bootstrap, topic) == sent
    assert consume(broker.bootstrap, topic, 0, sent) == numbered(0, sent)
    await_local_retention(broker, topic)

    def is_clean() -> bool:
        """Each segment has three objects, and one copy."""
        bases = stored_bases(tier, topic)
        parts = [name for name in stored_objects(tier, topic) if name != TOPIC_FILE]
        return len(bases) == len(set(bases)) and len(parts) == 3 * len(bases)

    eventually(is_clean, lambda: f"garbage is left: {stored_objects(tier, topic)}")
    assert consume(broker.bootstrap, topic, 0, sent) == numbered(0, sent)


def test_a_deleted_topic_leaves_nothing_in_the_tier(
    broker: BrokerProcess, tier: Path, topic: str
) -> None:
    make_tiered_topic(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, range(RECORDS))
    await_all_copied(broker.bootstrap, topic, broker.data_directory)
    assert stored_objects(tier, topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(SECONDS)
    eventually(lambda: not stored_objects(tier, topic), "objects of the deleted topic are left")


def test_copies_stop_and_go_on_with_the_config(
    broker: BrokerProcess, tier: Path, topic: str
) -> None:
    make_tiered_topic(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, range(60))
    last = await_all_copied(broker.bootstrap, topic, broker.data_directory)
    alter(broker.bootstrap, topic, remote_log_copy_disable="true")
    produce(broker.bootstrap, topic, range(60, 120))
    assert offset_at(broker.bootstrap, topic, LATEST_TIERED) == last
    assert consume(broker.bootstrap, topic, 0, 120) == numbered(0, 120)
    alter(broker.bootstrap, topic, remote_log_copy_disable="false")
    assert await_all_copied(broker.bootstrap, topic, broker.data_directory) > last


def test_a_tier_that_is_switched_off_leaves_the_local_records(
    broker: BrokerProcess, tier: Path, topic: str
) -> None:
    make_tiered_topic(broker.bootstrap, topic, local_retention_bytes="20000")
    produce(broker.bootstrap, topic, range(RECORDS))
    await_all_copied(broker.bootstrap, topic, broker.data_directory)
    eventually(lambda: offset_at(broker.bootstrap, topic, EARLIEST_LOCAL) > 0, "all is local")
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        alter(broker.bootstrap, topic, remote_storage_enable="false")
    off = {"remote_storage_enable": "false", "remote_log_delete_on_disable": "true"}
    alter(broker.bootstrap, topic, **off)
    # The removal goes on after a restart.
    broker.restart()
    eventually(lambda: not stored_objects(tier, topic), "objects of the former tier are left")
    start = offset_at(broker.bootstrap, topic, EARLIEST)
    assert 0 < start == offset_at(broker.bootstrap, topic, EARLIEST_LOCAL) < RECORDS
    assert offset_at(broker.bootstrap, topic, LATEST_TIERED) == -1
    assert consume(broker.bootstrap, topic, start, RECORDS - start) == numbered(start, RECORDS)
    # The topic can have a tier again, which gets what is on the disk.
    alter(broker.bootstrap, topic, remote_storage_enable="true")
    await_all_copied(broker.bootstrap, topic, broker.data_directory)
    assert consume(broker.bootstrap, topic, start, RECORDS - start) == numbered(start, RECORDS)


# Three brokers.


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, tier: Path) -> Iterator[ClusterProcess]:
    """Three brokers with one tier; each test leaves all of them running."""
    settings = tier_settings(tier, replicas=3) | {
        "min.insync.replicas": "2",
        "replica.lag.time.max.ms": "3000",
        "broker.session.timeout.ms": "6000",
    }
    with ClusterProcess(3, 0, tmp_path_factory.mktemp("cluster"), settings) as made:
        yield made


def leader_of(cluster: ClusterProcess, topic: str, other_than: int = -1) -> int:
    """Return the leader of partition 0, as soon as it is another broker."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def leader() -> int | None:
        found = admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions.get(0)
        if found is None or found.leader in (-1, other_than):
            return None
        return found.leader

    return int(eventually(leader, "the partition has no new leader"))


def test_a_new_leader_goes_on_with_the_tier(cluster: ClusterProcess, tier: Path) -> None:
    topic = "led-by-turns"
    make_tiered_topic(cluster.bootstrap, topic, replicas=3, local_retention_bytes="1")
    produce(cluster.bootstrap, topic, range(RECORDS))
    first = leader_of(cluster, topic)
    node = cluster.node(first)
    await_all_copied(node.address, topic, node.data_directory)
    node.kill()
    second = leader_of(cluster, topic, other_than=first)
    other = cluster.node(second)
    assert consume(other.address, topic, 0, RECORDS) == numbered(0, RECORDS)
    produce(other.address, topic, range(RECORDS, 2 * RECORDS))
    await_all_copied(other.address, topic, other.data_directory)
    assert consume(other.address, topic, 0, 2 * RECORDS) == numbered(0, 2 * RECORDS)
    bases = stored_bases(tier, topic)
    assert len(bases) == len(set(bases))
    node.start()


def test_a_wiped_replica_begins_behind_the_tier(cluster: ClusterProcess) -> None:
    """It fetches only the local part, and leads afterwards."""
    topic = "copied-in-part"
    make_tiered_topic(cluster.bootstrap, topic, replicas=3, local_retention_bytes="1")
    produce(cluster.bootstrap, topic, range(RECORDS))
    leader = leader_of(cluster, topic)
    node = cluster.node(leader)
    last = await_all_copied(node.address, topic, node.data_directory)
    eventually_equal(lambda: offset_at(node.address, topic, EARLIEST_LOCAL), last + 1)
    wiped = cluster.node(next(number for number in (1, 2, 3) if number != leader))
    wiped.stop()
    for directory in wiped.data_directory.glob(f"{topic}-*"):
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()
    wiped.start()
    admin = AdminClient({"bootstrap.servers": node.address})

    def is_in_sync() -> bool:
        found = admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions[0]
        return wiped.node_id in found.isrs

    eventually(is_in_sync, "the wiped replica is not in sync")
    assert local_bases(wiped.data_directory, topic)[0] > RECORDS // 2
