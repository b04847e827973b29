"""A tiered topic is made again from the store alone, after all disks of its cluster are lost."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas.testing.barnabas_command import barnabas_command
from barnabas.testing.broker_process import BrokerProcess
from barnabas.testing.cluster_process import ClusterProcess
from buckets.fixtures import moto
from conformance.tiered_topics import (
    EARLIEST_LOCAL,
    await_all_copied,
    end_of,
    make_tiered_topic,
    offset_at,
    produce,
    stored_bases,
    tier_settings,
)
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from buckets.bucket import Bucket

pytestmark = pytest.mark.conformance
__all__ = ["moto"]

TOPIC = "lost"
SECONDS = 120.0
# A transaction has records in several segments, which have about ten records each.
_LONG_TRANSACTION = 25


class Seen(NamedTuple):
    """A record as a consumer sees it."""

    offset: int
    timestamp: int
    headers: tuple[tuple[str, bytes], ...]
    value: bytes


def read(bootstrap: str, end: int, isolation: str, topic: str = TOPIC) -> list[Seen]:
    """Return all records of partition 0 below an offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers-of-restored",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "fetch.wait.max.ms": 100,
        }
    )

    def first_offset() -> int | None:
        try:
            return consumer.get_watermark_offsets(TopicPartition(topic, 0), 10.0)[0]
        except KafkaException:
            # The partition has no leader for a moment.
            return None

    eventually(lambda: first_offset() is not None, "the partition has no leader", SECONDS)
    start = first_offset()
    assert start is not None
    consumer.assign([TopicPartition(topic, 0, start)])
    found: list[Seen] = []
    has_ended = False

    def is_read() -> bool:
        nonlocal has_ended
        for message in consumer.consume(500, 0.2):
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                has_ended = True
                continue
            headers = tuple(message.headers() or ())
            found.append(Seen(message.offset(), message.timestamp()[1], headers, message.value()))
        return has_ended or bool(found and found[-1].offset >= end - 1)

    try:
        eventually(is_read, lambda: f"{len(found)} records were read below {end}", SECONDS)
    finally:
        consumer.close()
    return [each for each in found if each.offset < end]


def write(producer: Producer, kind: bytes, numbers: range) -> None:
    """Write records with headers, and wait for their acknowledgement."""
    failed: list[KafkaError] = []
    for number in numbers:
        producer.produce(
            TOPIC,
            kind + b":%d" % number + b"." * 1000,
            partition=0,
            timestamp=1_700_000_000_000 + number,
            headers=[("number", b"%d" % number)],
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(SECONDS) == 0
    assert not failed, failed


def write_history(bootstrap: str) -> None:
    """Write plain records, and transactions that are committed and aborted across segments."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "batch.num.messages": 3}
    plain = Producer({**settings, "enable.idempotence": True, "compression.type": "zstd"})
    in_transactions = Producer({**settings, "transactional.id": "history"})
    in_transactions.init_transactions(SECONDS)
    write(plain, b"plain", range(20))
    in_transactions.begin_transaction()
    write(in_transactions, b"committed", range(20, 20 + _LONG_TRANSACTION))
    in_transactions.commit_transaction(SECONDS)
    in_transactions.begin_transaction()
    write(in_transactions, b"aborted", range(50, 50 + _LONG_TRANSACTION))
    write(plain, b"plain", range(80, 90))
    in_transactions.abort_transaction(SECONDS)
    # Its marker is in the active segment, which is lost.
    in_transactions.begin_transaction()
    write(in_transactions, b"cut", range(100, 100 + _LONG_TRANSACTION))
    in_transactions.commit_transaction(SECONDS)


def barnabas(*words: object) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*barnabas_command(), *map(str, words)],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )


def restored(*words: object) -> dict[str, Any]:
    """Run `barnabas remote restore`, which must succeed; return its result."""
    done = barnabas("remote", "restore", *words, "--topic", TOPIC, "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def lose_a_cluster(
    tmp_path: Path, tier: Path, more_records: int = 0
) -> tuple[int, list[Seen], list[Seen]]:
    """Write a history, copy it, and delete the disks.

    Returns:
        The end of what was copied, and the records below it: all, and those of decided
        transactions.
    """
    directory = tmp_path / "lost"
    directory.mkdir()
    with BrokerProcess(directory, tier_settings(tier)) as broker:
        make_tiered_topic(broker.bootstrap, TOPIC, local_retention_bytes="1", retention_ms="-1")
        if more_records:
            produce(broker.bootstrap, TOPIC, range(more_records))
        write_history(broker.bootstrap)
        end = await_all_copied(broker.bootstrap, TOPIC, broker.data_directory) + 1
        everything = read(broker.bootstrap, end, "read_uncommitted")
        committed = read(broker.bootstrap, end, "read_committed")
        eventually(lambda: any(tier.glob(f"*/{TOPIC}-*/topic.json")), "no topic.json", SECONDS)
        broker.kill()
    shutil.rmtree(directory)
    assert any(each.value.startswith(b"aborted") for each in everything)
    assert any(each.value.startswith(b"cut") for each in everything)
    return end, everything, [each for each in committed if not each.value.startswith(b"cut")]


def produce_refusal(bootstrap: str) -> KafkaError | None:
    """Try to write a record; return the error."""
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 60_000})
    producer.produce(TOPIC, b"x", partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(SECONDS)
    return errors[0]


def test_a_topic_is_restored_from_the_store_after_all_disks_are_lost(tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    tier.mkdir()
    end, everything, committed = lose_a_cluster(tmp_path, tier)
    segments = len(stored_bases(tier, TOPIC))
    directory = tmp_path / "new"
    directory.mkdir()
    with BrokerProcess(directory, tier_settings(tier)) as broker:
        bootstrap = broker.bootstrap
        found = restored(f"file://{tier}", "--bootstrap", bootstrap)
        assert (found["segments"], found["copied"]) == (segments, segments)
        assert found["aborted_transactions"] == 1
        (partition,) = found["partitions"]
        assert (partition["log_start_offset"], partition["log_end_offset"]) == (0, end)
        assert read(bootstrap, end, "read_uncommitted") == everything
        assert read(bootstrap, end, "read_committed") == committed
        # The marker of the aborted transaction.
        assert end_of(bootstrap, TOPIC) == end + 1
        produce(bootstrap, TOPIC, range(end + 1, end + 31))
        await_all_copied(bootstrap, TOPIC, broker.data_directory)
        eventually(lambda: offset_at(bootstrap, TOPIC, EARLIEST_LOCAL) > end + 1, "nothing expired")
        broker.restart()
        bootstrap = broker.bootstrap
        assert read(bootstrap, end, "read_committed") == committed
        assert len(read(bootstrap, end + 31, "read_committed")) == len(committed) + 30
        # A second restore does not touch the topic.
        again = barnabas(
            "remote", "restore", f"file://{tier}", "--topic", TOPIC, "--bootstrap", bootstrap
        )
        assert again.returncode == 1
        assert "has a topic lost already" in again.stderr


@pytest.mark.nightly
def test_a_killed_restore_goes_on_and_reaches_all_replicas(tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    tier.mkdir()
    end, everything, committed = lose_a_cluster(tmp_path, tier, more_records=1_000)
    with ClusterProcess(3, 0, tmp_path / "new", tier_settings(tier, replicas=3)) as cluster:
        bootstrap = cluster.bootstrap
        words = (f"file://{tier}", "--bootstrap", bootstrap, "--replication-factor", "3")
        before = len(stored_bases(tier, TOPIC))
        for copies in (1, 10, 40):
            command = [*barnabas_command(), "remote", "restore", *words, "--topic", TOPIC]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            eventually(
                lambda wanted=before + copies, process=process: (
                    len(stored_bases(tier, TOPIC)) >= wanted or process.poll() is not None
                ),
                "nothing was copied",
                SECONDS,
            )
            process.kill()
            output, _ = process.communicate()
            assert process.returncode == -9, output
            refusal = produce_refusal(bootstrap)
            assert refusal is not None
            assert refusal.code() == KafkaError.POLICY_VIOLATION
        found = restored(*words)
        assert found["copied_before"] >= 20
        assert found["copied"] + found["copied_before"] == before
        assert read(bootstrap, end, "read_uncommitted") == everything
        # Each broker can lead: all of them have adopted the segments.
        for number in (1, 2, 3):
            node = cluster.node(number)
            node.kill()
            assert read(bootstrap, end, "read_committed") == committed
            produce(bootstrap, TOPIC, range(30), acks="all")
            node.start()
            eventually(lambda: has_full_isr(bootstrap), "the replica does not come back", SECONDS)
        assert read(bootstrap, end, "read_uncommitted") == everything


def has_full_isr(bootstrap: str) -> bool:
    """Return whether all three replicas are in sync."""
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(TOPIC, timeout=SECONDS)
    return len(found.topics[TOPIC].partitions[0].isrs) == 3


@pytest.mark.nightly
def test_a_topic_is_restored_from_a_bucket_under_another_name(tmp_path: Path, moto: Bucket) -> None:
    settings = tier_settings(tmp_path, replicas=1) | moto.settings()
    options = [f"--option={key}={value}" for key, value in moto.options_with_credentials.items()]
    with BrokerProcess(tmp_path / "lost", settings) as broker:
        make_tiered_topic(broker.bootstrap, TOPIC, retention_ms="-1")
        write_history(broker.bootstrap)
        end = await_all_copied(broker.bootstrap, TOPIC, broker.data_directory) + 1
        everything = read(broker.bootstrap, end, "read_uncommitted")
        eventually(
            lambda: any(name.endswith("topic.json") for name in moto.objects()),
            "no topic.json",
            SECONDS,
        )
        broker.kill()
    with BrokerProcess(tmp_path / "new", settings) as broker:
        words = (moto.url, *options, "--bootstrap", broker.bootstrap, "--as", "found")
        assert restored(*words)["topic"] == "found"
        assert read(broker.bootstrap, end, "read_uncommitted", "found") == everything


@pytest.mark.nightly
def test_a_topic_is_restored_within_the_same_cluster(tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    tier.mkdir()
    with BrokerProcess(tmp_path / "broker", tier_settings(tier)) as broker:
        make_tiered_topic(broker.bootstrap, TOPIC, retention_ms="-1")
        write_history(broker.bootstrap)
        end = await_all_copied(broker.bootstrap, TOPIC, broker.data_directory) + 1
        everything = read(broker.bootstrap, end, "read_uncommitted")
        words = (f"file://{tier}", "--bootstrap", broker.bootstrap, "--as", "again")
        assert restored(*words)["topic"] == "again"
        assert read(broker.bootstrap, end, "read_uncommitted", "again") == everything
        assert read(broker.bootstrap, end, "read_uncommitted") == everything
