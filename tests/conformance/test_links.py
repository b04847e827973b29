"""Mirrors of another Barnabas: the same bytes and offsets, states, promotion and failures."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import NewPartitions

from barnabas import Client
from barnabas.testing.broker_process import BROKER_SETTINGS, BrokerProcess
from conformance.cli_shell import Shell
from conformance.linked_clusters import (
    LINK,
    SECONDS,
    Linked,
    batch_bytes,
    commit_offset,
    read_all,
)
from conformance.secured_broker import SecuredBroker
from group_offsets import find_committed
from selection import nightly_unless
from waiting import eventually, eventually_equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SETTINGS = {**BROKER_SETTINGS, "offsets.topic.num.partitions": "2"}
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def source(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "source", SETTINGS) as process:
        yield process


@pytest.fixture
def target(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "target", SETTINGS) as process:
        yield process


@pytest.fixture
def linked(source: BrokerProcess, target: BrokerProcess, tmp_path: Path) -> Linked:
    return Linked(source.bootstrap, target.bootstrap, tmp_path)


@pytest.fixture
def topic() -> str:
    return f"orders-{uuid.uuid4().hex[:8]}"


def values(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


def assert_same_bytes(
    source: BrokerProcess, target: BrokerProcess, topic: str, partition: int = 0
) -> None:
    theirs = batch_bytes(source.data_directory, topic, partition)
    assert theirs
    assert batch_bytes(target.data_directory, topic, partition) == theirs


def test_a_mirror_has_the_bytes_of_its_source(
    linked: Linked, source: BrokerProcess, target: BrokerProcess, topic: str
) -> None:
    linked.create_topic(topic, 2)
    linked.create_link("orders-.*")
    for compression in COMPRESSIONS:
        linked.produce(topic, values(compression, 50), **{"compression.type": compression})
    linked.produce(topic, values("idempotent", 20), **{"enable.idempotence": True})
    linked.await_mirrored(topic, 2)

    for partition in (0, 1):
        assert_same_bytes(source, target, topic, partition)


def test_a_mirror_has_transactions_and_their_outcomes(
    linked: Linked, source: BrokerProcess, target: BrokerProcess, topic: str
) -> None:
    linked.create_topic(topic)
    linked.produce_in_transaction(topic, values("committed", 5), commit=True)
    linked.produce_in_transaction(topic, values("aborted", 5), commit=False)
    linked.produce(topic, values("plain", 5))
    linked.create_link("orders-.*")
    linked.await_mirrored(topic)

    assert_same_bytes(source, target, topic)
    committed = read_all(linked.source, topic)
    assert len(committed) == 10
    assert read_all(linked.target, topic) == committed


def test_a_mirror_goes_on_after_restarts_and_kills_of_both_sides(
    linked: Linked, source: BrokerProcess, target: BrokerProcess, topic: str
) -> None:
    linked.create_topic(topic)
    linked.create_link("orders-.*")
    linked.produce(topic, values("first", 100))
    linked.await_mirrored(topic)
    target.kill()
    linked.produce(topic, values("second", 100))
    target.start()
    linked.await_mirrored(topic)
    source.kill()
    source.start()
    linked.produce(topic, values("third", 100))
    linked.await_mirrored(topic)
    target.stop()
    target.start()
    linked.produce(topic, values("fourth", 100))
    linked.await_mirrored(topic)

    assert_same_bytes(source, target, topic)


def test_clients_cannot_write_to_a_mirror(linked: Linked, topic: str) -> None:
    linked.create_topic(topic)
    linked.create_link("orders-.*")
    linked.produce(topic, values("record", 3))
    linked.await_mirrored(topic)
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": linked.target})
    producer.produce(topic, b"refused", on_delivery=lambda error, _: errors.append(error))
    producer.flush(SECONDS)
    transactional = Producer({"bootstrap.servers": linked.target, "transactional.id": "refused"})
    transactional.init_transactions(SECONDS)
    transactional.begin_transaction()
    transactional.produce(topic, b"refused", on_delivery=lambda error, _: errors.append(error))
    transactional.flush(SECONDS)
    transactional.abort_transaction(SECONDS)
    deleted = linked.target_admin.delete_records([TopicPartition(topic, 0, 1)])

    assert [None if each is None else each.code() for each in errors] == [
        KafkaError.INVALID_REQUEST,
        KafkaError.INVALID_REQUEST,
    ]
    with pytest.raises(KafkaException) as refused:
        next(iter(deleted.values())).result(SECONDS)
    assert refused.value.args[0].code() == KafkaError.POLICY_VIOLATION
    assert linked.end(linked.target, topic) == 3


def test_the_log_start_follows_and_a_late_mirror_begins_there(
    linked: Linked, source: BrokerProcess, target: BrokerProcess, topic: str
) -> None:
    linked.create_topic(topic)
    linked.create_link("orders-.*")
    linked.produce(topic, values("first", 10))
    linked.await_mirrored(topic)
    linked.shell.ok("links", "pause", LINK)
    linked.produce(topic, values("second", 20))
    deleted = linked.source_admin.delete_records([TopicPartition(topic, 0, 25)])
    next(iter(deleted.values())).result(SECONDS)
    linked.shell.ok("links", "resume", LINK)
    linked.await_mirrored(topic)

    assert read_all(linked.target, topic) == read_all(linked.source, topic)
    consumer = Consumer({"bootstrap.servers": linked.target, "group.id": "starts"})
    eventually_equal(
        lambda: consumer.get_watermark_offsets(TopicPartition(topic, 0), SECONDS), (25, 30)
    )
    consumer.close()


def test_new_topics_partitions_and_configs_follow(linked: Linked, topic: str) -> None:
    linked.create_topic(topic, config={"retention.ms": "123456789"})
    linked.create_link("orders-.*")
    linked.produce(topic, values("record", 3))
    linked.await_mirrored(topic)
    grown = linked.source_admin.create_partitions([NewPartitions(topic, 3)])
    grown[topic].result(SECONDS)
    eventually(
        lambda: len(linked.target_admin.list_topics(timeout=SECONDS).topics[topic].partitions) == 3
    )
    later = f"{topic}-later"
    linked.create_topic(later)
    linked.produce(later, values("record", 3))
    linked.await_mirrored(later)

    described = linked.shell.json("configs", "describe", "topic", topic)
    assert "123456789" in str(described)


def test_a_topic_made_anew_at_the_source_stops_its_mirror(linked: Linked, topic: str) -> None:
    linked.create_topic(topic)
    linked.create_link("orders-.*")
    linked.produce(topic, values("old", 10))
    linked.await_mirrored(topic)
    linked.source_admin.delete_topics([topic])[topic].result(SECONDS)
    eventually(lambda: topic not in linked.source_admin.list_topics(timeout=SECONDS).topics)
    linked.create_topic(topic)
    linked.produce(topic, values("new", 20))
    eventually(lambda: linked.state(topic)["state"] == "stopped")

    assert "created again" in linked.state(topic)["reason"]
    assert [record[3] for record in read_all(linked.target, topic)] == [
        each.encode() for each in values("old", 10)
    ]


@pytest.mark.parametrize(
    "is_restarted", nightly_unless(bool, [False, True]), ids=["running", "restarted"]
)
def test_a_source_that_has_lost_records_stops_its_mirror(
    linked: Linked,
    source: BrokerProcess,
    target: BrokerProcess,
    topic: str,
    is_restarted: bool,
) -> None:
    linked.create_topic(topic)
    linked.create_link("orders-.*")
    for number in range(5):
        linked.produce(topic, [f"old-{number}"])
    linked.await_mirrored(topic)
    source.kill()
    if is_restarted:
        target.kill()
    (log_file,) = (source.data_directory / f"{topic}-0").glob("*.log")
    with log_file.open("r+b") as file:
        file.truncate(log_file.stat().st_size - 1)
    source.start()
    linked.produce(topic, ["new"] * 3)
    if is_restarted:
        target.start()
    eventually(lambda: linked.state(topic)["state"] == "stopped")

    assert "lost records" in linked.state(topic)["reason"]
    assert [record[3] for record in read_all(linked.target, topic)] == [
        each.encode() for each in values("old", 5)
    ]


def test_a_stopped_mirror_follows_its_source_after_the_operator_chose_so(
    linked: Linked, source: BrokerProcess, target: BrokerProcess, topic: str
) -> None:
    linked.create_topic(topic)
    linked.create_link("orders-.*")
    for number in range(5):
        linked.produce(topic, [f"old-{number}"])
    linked.await_mirrored(topic)
    source.kill()
    (log_file,) = (source.data_directory / f"{topic}-0").glob("*.log")
    with log_file.open("r+b") as file:
        file.truncate(log_file.stat().st_size - 1)
    source.start()
    linked.produce(topic, ["new"] * 3)
    eventually(lambda: linked.state(topic)["state"] == "stopped")
    words = ["--topic", topic, "--on-truncation", "follow"]
    linked.shell.ok("links", "resume", LINK, *words)
    expected = [b"old-0", b"old-1", b"old-2", b"old-3", b"new", b"new", b"new"]
    eventually_equal(lambda: [each[3] for each in read_all(linked.target, topic)], expected)

    assert_same_bytes(source, target, topic)
    assert linked.state(topic)["state"] == "active"


def test_a_consumer_goes_on_at_the_promoted_mirror(linked: Linked, topic: str) -> None:
    linked.create_topic(topic)
    linked.create_link("orders-.*", "readers")
    linked.produce(topic, values("record", 100))
    config = {
        "group.id": "readers",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    seen: list[bytes] = []
    consumer = Consumer({"bootstrap.servers": linked.source, **config})
    consumer.subscribe([topic])
    while len(seen) < 40:
        message = consumer.poll(SECONDS)
        assert message is not None
        assert message.error() is None
        seen.append(message.value())
    consumer.commit(offsets=[TopicPartition(topic, 0, 40)], asynchronous=False)
    consumer.close()
    linked.await_mirrored(topic)
    linked.shell.ok("links", "promote", LINK)
    producer = Producer({"bootstrap.servers": linked.target, "enable.idempotence": True})
    producer.produce(topic, b"after")
    assert producer.flush(SECONDS) == 0
    consumer = Consumer({"bootstrap.servers": linked.target, **config})
    consumer.subscribe([topic])
    while len(seen) < 101:
        message = consumer.poll(SECONDS)
        assert message is not None
        assert message.error() is None
        seen.append(message.value())
    consumer.close()

    assert seen == [*(each.encode() for each in values("record", 100)), b"after"]
    linked.shell.ok("links", "delete", LINK)
    assert linked.shell.json("links", "list") == []


def test_a_forced_promotion_names_the_groups_whose_offsets_are_missing(
    linked: Linked, topic: str
) -> None:
    linked.create_topic(topic)
    linked.create_link("orders-.*", "readers|others")
    linked.produce(topic, values("record", 10))
    linked.await_mirrored(topic)
    # A group with members in this cluster gets no offsets from the source.
    member = Consumer({"bootstrap.servers": linked.target, "group.id": "readers"})
    member.subscribe([topic])
    eventually(lambda: member.poll(1) is not None or bool(member.assignment()))
    for group in ("readers", "others"):
        commit_offset(linked.source, group, topic, 7)
    other = Consumer({"bootstrap.servers": linked.target, "group.id": "others"})
    eventually_equal(lambda: find_committed(other, TopicPartition(topic, 0))[0].offset, 7)
    done = linked.shell.run("links", "promote", LINK, "--force")
    member.close()
    other.close()

    assert done.returncode == 0
    assert "those of 1 group are missing: readers" in done.stderr
    assert linked.state(topic)["state"] == "promoted"


def test_promotion_ends_the_transactions_and_producers_of_the_source(
    linked: Linked, target: BrokerProcess, topic: str
) -> None:
    linked.create_topic(topic)
    linked.create_link("orders-.*")
    linked.produce(topic, values("idempotent", 5), **{"enable.idempotence": True})
    hanging = Producer({"bootstrap.servers": linked.source, "transactional.id": "hanging"})
    hanging.init_transactions(SECONDS)
    hanging.begin_transaction()
    hanging.produce(topic, b"open")
    hanging.flush(SECONDS)
    linked.await_mirrored(topic)
    linked.shell.ok("links", "promote", LINK, "--force")
    # The ids of the first producers of both clusters are the same.
    for number in range(3):
        producer = Producer({"bootstrap.servers": linked.target, "enable.idempotence": True})
        producer.produce(topic, f"own-{number}".encode())
        assert producer.flush(SECONDS) == 0
    target.kill()
    target.start()

    expected = [*values("idempotent", 5), "own-0", "own-1", "own-2"]
    eventually_equal(
        lambda: [record[3].decode() for record in read_all(linked.target, topic)], expected
    )
    hanging.abort_transaction(SECONDS)


def test_a_link_to_its_own_cluster_is_refused(linked: Linked) -> None:
    own = Linked(linked.target, linked.target, linked.directory)
    with pytest.raises(AssertionError, match="this cluster itself"):
        own.create_link(".*")


def test_a_mirror_of_a_compacted_topic_has_its_gaps(linked: Linked, topic: str) -> None:
    linked.create_topic(
        topic,
        config={
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.001",
        },
    )
    linked.shell.ok("configs", "set", "broker", "default", "log.cleaner.backoff.ms=200")
    source_shell = Shell(linked.source)
    source_shell.ok("configs", "set", "broker", "default", "log.cleaner.backoff.ms=200")

    def is_compacted() -> bool:
        linked.produce(topic, ["same", "other"])
        return len(read_all(linked.source, topic)) < linked.end(linked.source, topic) - 2

    eventually(is_compacted, pause_s=0.2)
    linked.create_link("orders-.*")
    linked.await_mirrored(topic)
    linked.produce(topic, values("last", 3))
    linked.await_mirrored(topic)

    def visible(bootstrap: str) -> dict[bytes, tuple[object, ...]]:
        return {record[2]: record for record in read_all(bootstrap, topic)}

    assert visible(linked.target) == visible(linked.source)
    offsets = [record[0] for record in read_all(linked.target, topic)]
    assert offsets != list(range(offsets[-1] + 1))


def test_a_link_logs_in_over_tls_and_its_password_is_not_shown(
    target: BrokerProcess, tmp_path: Path
) -> None:
    source = SecuredBroker(tmp_path / "secured")
    source.start()
    try:
        keys = source.keys("barnabas")
        with Client(keys.pop("bootstrap.servers"), **keys) as client:
            client.create_topic("orders", partitions=1)
            with client.producer() as producer:
                for number in range(10):
                    producer.send("orders", f"record-{number}".encode())
        shell = Shell(target.bootstrap)
        shell.ok("links", "create", LINK, "--config", source.file("barnabas"), "--topics", "orders")
        linked = Linked(target.bootstrap, target.bootstrap, tmp_path)
        eventually(lambda: linked.end(target.bootstrap, "orders") == 10)
        shown = shell.ok("configs", "describe", "broker", "default", "--all", "--sources")
        assert "barnabas.link.prod.bootstrap.servers" in shown
        assert source.password not in shown
    finally:
        source.stop()


def test_a_mirror_is_not_mirrored_back(linked: Linked, tmp_path: Path, topic: str) -> None:
    linked.create_topic(topic)
    linked.create_link("orders-.*")
    linked.produce(topic, values("record", 5))
    linked.await_mirrored(topic)
    (tmp_path / "back").mkdir()
    back = Linked(linked.target, linked.source, tmp_path / "back")
    back.create_link("orders-.*")
    # Both links work: a topic of the other cluster follows.
    own = f"{topic}-own"
    back.create_topic(own)
    back.produce(own, values("own", 3))
    back.await_mirrored(own)
    # Without its source, the mirror is the only topic of that name.
    linked.source_admin.delete_topics([topic])[topic].result(SECONDS)
    later = f"{topic}-later"
    back.create_topic(later)
    back.produce(later, values("later", 3))
    back.await_mirrored(later)

    assert back.state(later)["state"] == "active"
    eventually_equal(lambda: back.state(topic), {})
    eventually(lambda: linked.state(own).get("state") == "conflict")
    assert topic not in linked.source_admin.list_topics(timeout=SECONDS).topics
    assert linked.end(linked.target, topic) == 5


def test_a_source_that_hangs_delays_only_its_own_link(
    linked: Linked, source: BrokerProcess, tmp_path: Path, topic: str
) -> None:
    linked.create_topic(topic)
    linked.create_link("orders-.*", ".*")
    linked.produce(topic, values("first", 10))
    linked.await_mirrored(topic)
    with BrokerProcess(tmp_path / "other", SETTINGS) as second:
        source.pause()
        (tmp_path / "links").mkdir()
        other = Linked(second.bootstrap, linked.target, tmp_path / "links")
        properties = tmp_path / "links" / "other.properties"
        properties.write_text(f"bootstrap.servers={second.bootstrap}\n")
        words = ["--config", str(properties), "--topics", "other-.*"]
        other.shell.ok("links", "create", "other", *words)
        mirrored = f"other-{topic}"
        other.create_topic(mirrored)
        other.produce(mirrored, values("other", 10))
        other.await_mirrored(mirrored)
        own = Producer({"bootstrap.servers": linked.target})
        linked.shell.ok("topics", "create", "own", "--partitions", "1")
        own.produce("own", b"own")
        assert own.flush(SECONDS) == 0
        source.resume()
        linked.produce(topic, values("second", 10))
        linked.await_mirrored(topic)

    assert read_all(linked.target, topic) == read_all(linked.source, topic)
