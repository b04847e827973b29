"""Topics that move to their mirrors and back: `links reverse` and `links failback`."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from barnabas import Client
from barnabas.cli.links.reversal import Clusters, NewMirrors
from barnabas.replication.links.link_table import SOURCE_CLUSTER_ID, TOPICS
from barnabas.testing.broker_process import BROKER_SETTINGS, BrokerProcess
from conformance.linked_clusters import (
    LINK,
    SECONDS,
    Linked,
    batch_bytes,
    commit_offset,
    read_all,
)
from group_offsets import committed_offsets
from waiting import eventually, eventually_equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.conformance

SETTINGS = {**BROKER_SETTINGS, "offsets.topic.num.partitions": "2"}
GROUP = "readers"


@pytest.fixture
def source(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "source", SETTINGS) as process:
        yield process


@pytest.fixture
def target(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "target", SETTINGS) as process:
        yield process


@pytest.fixture
def topic() -> str:
    return f"orders-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def linked(source: BrokerProcess, target: BrokerProcess, tmp_path: Path, topic: str) -> Linked:
    """The topic in the source, and a link that mirrors it."""
    made = Linked(source.bootstrap, target.bootstrap, tmp_path)
    made.create_topic(topic, 2)
    made.create_link("orders-.*", GROUP)
    return made


@pytest.fixture
def back(linked: Linked) -> Linked:
    """The other direction: its source is the cluster with the promoted mirrors."""
    return Linked(linked.target, linked.source, linked.directory)


def values(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


def own_config(linked: Linked) -> str:
    file = linked.directory / "here.properties"
    file.write_text(f"bootstrap.servers={linked.target}\n")
    return str(file)


def committed(bootstrap: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    return committed_offsets(consumer, topic, [0]).get(0, -1001)


def produce_error(bootstrap: str, topic: str) -> int | None:
    """Return the error of one record; None if it was written."""
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"one", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(SECONDS) == 0
    (error,) = errors
    return None if error is None else error.code()


def assert_same_bytes(
    source: BrokerProcess, target: BrokerProcess, topic: str, partitions: int = 2
) -> None:
    for partition in range(partitions):
        theirs = batch_bytes(source.data_directory, topic, partition)
        assert batch_bytes(target.data_directory, topic, partition) == theirs


def test_a_topic_moves_to_its_mirror_and_back(
    linked: Linked, back: Linked, source: BrokerProcess, target: BrokerProcess, topic: str
) -> None:
    linked.produce(topic, values("first", 50), **{"enable.idempotence": True})
    linked.produce_in_transaction(topic, values("committed", 5), commit=True)
    linked.produce_in_transaction(topic, values("aborted", 5), commit=False)
    commit_offset(linked.source, GROUP, topic, 10)
    linked.await_mirrored(topic, 2)
    linked.shell.ok("links", "promote", LINK)
    back.produce(topic, values("second", 50), **{"enable.idempotence": True})
    linked.shell.ok("links", "reverse", LINK, "--config", own_config(linked))

    assert linked.described()["state"] == "reversed"
    back.await_mirrored(topic, 2)
    assert_same_bytes(source, target, topic)
    assert produce_error(linked.source, topic) == KafkaError.INVALID_REQUEST
    back.produce(topic, values("third", 50), **{"enable.idempotence": True})
    back.produce_in_transaction(topic, values("again", 5), commit=True)
    # Topics that are created in the meantime move too.
    back.create_topic(f"{topic}-later")
    back.produce(f"{topic}-later", values("later", 5))
    back.await_mirrored(f"{topic}-later")
    commit_offset(linked.target, GROUP, topic, 20)
    before = read_all(linked.target, topic)
    linked.shell.ok("links", "failback", LINK)

    assert committed(linked.source, topic) == 20
    assert read_all(linked.source, topic) == before
    assert back.described()["state"] == "reversed"
    assert linked.described()["state"] == "active"
    assert produce_error(linked.target, topic) == KafkaError.INVALID_REQUEST
    for name, partitions in ((topic, 2), (f"{topic}-later", 1)):
        linked.produce(name, values("fourth", 20), **{"enable.idempotence": True})
        linked.await_mirrored(name, partitions)
        assert_same_bytes(source, target, name, partitions)
    assert len(read_all(linked.source, f"{topic}-later")) == 25
    # The same way again needs no properties.
    linked.shell.ok("links", "promote", LINK)
    back.produce(topic, values("fifth", 20))
    linked.shell.ok("links", "reverse", LINK)
    back.await_mirrored(topic, 2)
    assert_same_bytes(source, target, topic)


def test_a_reversal_is_refused_while_the_source_has_records_without_a_mirror(
    linked: Linked, back: Linked, source: BrokerProcess, target: BrokerProcess, topic: str
) -> None:
    linked.produce(topic, values("first", 50))
    linked.await_mirrored(topic, 2)
    linked.shell.ok("links", "promote", LINK)
    producer = Producer({"bootstrap.servers": linked.source})
    for number in range(7):
        producer.produce(topic, f"lost-{number}".encode(), partition=1)
        assert producer.flush(SECONDS) == 0
    back.produce(topic, values("second", 30))
    first = linked.end(linked.source, topic, 1) - 7
    config = own_config(linked)
    refused = linked.shell.run("links", "reverse", LINK, "--config", config)

    assert refused.returncode == 1
    assert f"{topic}-1: 7 records from offset {first} on" in refused.stderr
    assert produce_error(linked.source, topic) is None
    # The record of this test is lost too, in one of the partitions.
    linked.shell.ok("links", "reverse", LINK, "--config", config, "--discard", "--yes")
    back.await_mirrored(topic, 2)
    assert_same_bytes(source, target, topic)
    assert b"lost-0" not in [record[3] for record in read_all(linked.source, topic)]
    described = linked.shell.ok("links", "describe", LINK)
    assert "reversed" in described
    shown = back.shell.ok("configs", "describe", "broker", "default", "--all")
    assert "on.truncation" not in shown


def test_a_reversal_waits_for_no_open_transaction(linked: Linked, topic: str) -> None:
    linked.produce(topic, values("first", 5))
    linked.await_mirrored(topic, 2)
    hanging = Producer({"bootstrap.servers": linked.source, "transactional.id": "hanging"})
    hanging.init_transactions(SECONDS)
    hanging.begin_transaction()
    hanging.produce(topic, b"open")
    hanging.flush(SECONDS)
    linked.await_mirrored(topic, 2)
    linked.shell.ok("links", "promote", LINK)
    config = own_config(linked)
    refused = linked.shell.run("links", "reverse", LINK, "--config", config)

    assert refused.returncode == 1
    assert "a transaction is open" in refused.stderr
    hanging.abort_transaction(SECONDS)
    # The markers of both clusters differ, but no record is lost.
    linked.shell.ok("links", "reverse", LINK, "--config", config)
    eventually_equal(lambda: read_all(linked.source, topic), read_all(linked.target, topic))


def test_a_link_with_mirrors_is_not_reversed(linked: Linked, topic: str) -> None:
    linked.produce(topic, values("first", 5))
    linked.await_mirrored(topic, 2)
    refused = linked.shell.run("links", "reverse", LINK, "--config", own_config(linked))

    assert refused.returncode == 1
    assert "promote all its mirrors first" in refused.stderr
    refused = linked.shell.run("links", "failback", LINK)
    assert refused.returncode == 1
    assert "reverse the link first" in refused.stderr
    eventually(lambda: linked.state(topic)["state"] == "active")


def test_an_interrupted_reversal_is_repeated(
    linked: Linked, back: Linked, source: BrokerProcess, target: BrokerProcess, topic: str
) -> None:
    linked.produce(topic, values("first", 20))
    linked.await_mirrored(topic, 2)
    linked.shell.ok("links", "promote", LINK)
    with Client(target.bootstrap) as own, Client(source.bootstrap) as theirs:
        settings = {
            TOPICS: "orders-.*",
            SOURCE_CLUSTER_ID: own.describe_cluster().cluster_id or "",
            "bootstrap.servers": target.bootstrap,
        }
        NewMirrors(Clusters(own, theirs), LINK, [topic], settings).fence()
        eventually(lambda: produce_error(linked.source, topic) == KafkaError.INVALID_REQUEST)
    back.produce(topic, values("second", 20))
    linked.shell.ok("links", "reverse", LINK)
    back.await_mirrored(topic, 2)
    target.kill()
    target.start()
    # A reversal that has ended changes nothing more.
    linked.shell.ok("links", "reverse", LINK)
    back.produce(topic, values("third", 20))
    back.await_mirrored(topic, 2)

    assert_same_bytes(source, target, topic)


def test_a_failed_failback_leaves_topics_writable(
    linked: Linked, back: Linked, source: BrokerProcess, target: BrokerProcess, topic: str
) -> None:
    linked.produce(topic, values("first", 20))
    linked.await_mirrored(topic, 2)
    linked.shell.ok("links", "promote", LINK)
    linked.shell.ok("links", "reverse", LINK, "--config", own_config(linked))
    back.shell.ok("links", "pause", LINK)
    back.produce(topic, values("second", 20))
    refused = linked.shell.run("links", "failback", LINK)
    assert refused.returncode == 1
    assert "not active in the other cluster" in refused.stderr
    eventually(lambda: produce_error(linked.target, topic) is None)
    back.shell.ok("links", "resume", LINK)
    linked.shell.ok("links", "failback", LINK)
    linked.produce(topic, values("third", 20))
    linked.await_mirrored(topic, 2)

    assert_same_bytes(source, target, topic)
