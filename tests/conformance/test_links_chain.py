"""Chains and rings of clusters: mirrors of mirrors, and topics that come back to their cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from barnabas.testing.broker_process import BROKER_SETTINGS, BrokerProcess
from conformance.linked_clusters import LINK, SECONDS, Linked, batch_bytes, commit_offset, read_all
from group_offsets import committed_offsets
from waiting import eventually, eventually_equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# One pair of clusters is in tests for each change.
pytestmark = [pytest.mark.conformance, pytest.mark.nightly]

SETTINGS = {**BROKER_SETTINGS, "offsets.topic.num.partitions": "2"}
TOPIC, GROUP = "orders-eu", "readers"
PATTERN = "orders-.*"


class Chain:
    """Three clusters: the second mirrors the first, and the third mirrors the second."""

    def __init__(self, clusters: list[BrokerProcess], directory: Path) -> None:
        self.clusters = clusters
        self.first, self.second, self.third = clusters
        self._directory = directory
        self.near = self.pair(self.first, self.second)
        self.far = self.pair(self.second, self.third)

    def pair(self, source: BrokerProcess, target: BrokerProcess) -> Linked:
        """Return what a link between two of the clusters needs; the link is not created."""
        directory = self._directory / f"{source.port}-{target.port}"
        directory.mkdir()
        return Linked(source.bootstrap, target.bootstrap, directory)

    def await_mirrored(self, topic: str, partitions: int = 1) -> None:
        self.near.await_mirrored(topic, partitions)
        self.far.await_mirrored(topic, partitions)

    def batches(self, topic: str, partition: int = 0) -> list[list[bytes]]:
        return [batch_bytes(each.data_directory, topic, partition) for each in self.clusters]


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    with (
        BrokerProcess(tmp_path / "first", SETTINGS) as first,
        BrokerProcess(tmp_path / "second", SETTINGS) as second,
        BrokerProcess(tmp_path / "third", SETTINGS) as third,
    ):
        yield Chain([first, second, third], tmp_path)


def values(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


def produce_error(bootstrap: str, topic: str) -> int | None:
    """Return the error of one record; None if it was written."""
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce(topic, b"own", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(SECONDS) == 0
    (error,) = errors
    return None if error is None else error.code()


def committed(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    return committed_offsets(consumer, TOPIC, [0]).get(0, -1)


def test_a_mirror_of_a_mirror_is_equal_and_goes_on_after_the_promotion_of_the_middle(
    chain: Chain,
) -> None:
    near, far = chain.near, chain.far
    near.create_link(PATTERN, GROUP)
    far.create_link(PATTERN, GROUP)
    near.create_topic(TOPIC, 2)
    near.produce(TOPIC, values("idempotent", 50), **{"enable.idempotence": True})
    near.produce_in_transaction(TOPIC, values("committed", 5), commit=True)
    near.produce_in_transaction(TOPIC, values("aborted", 5), commit=False)
    commit_offset(near.source, GROUP, TOPIC, 10)
    chain.await_mirrored(TOPIC, 2)
    for partition in (0, 1):
        first, second, third = chain.batches(TOPIC, partition)
        assert first
        assert first == second == third
    eventually_equal(lambda: committed(far.target), 10)
    hanging = Producer({"bootstrap.servers": near.source, "transactional.id": "hanging"})
    hanging.init_transactions(SECONDS)
    hanging.begin_transaction()
    hanging.produce(TOPIC, b"open", partition=0)
    hanging.flush(SECONDS)
    chain.await_mirrored(TOPIC, 2)

    near.shell.ok("links", "promote", LINK)
    hanging.abort_transaction(SECONDS)
    far.produce(TOPIC, values("second", 30), **{"enable.idempotence": True})
    far.produce_in_transaction(TOPIC, values("again", 5), commit=True)
    far.await_mirrored(TOPIC, 2)
    assert far.state(TOPIC)["state"] == "active"
    assert produce_error(far.target, TOPIC) == KafkaError.INVALID_REQUEST
    for partition in (0, 1):
        _, second, third = chain.batches(TOPIC, partition)
        assert second == third
        assert read_all(far.target, TOPIC, partition=partition) == read_all(
            far.source, TOPIC, partition=partition
        )

    far.shell.ok("links", "promote", LINK)
    assert committed(far.target) == 10
    assert produce_error(far.target, TOPIC) is None
    assert produce_error(far.source, TOPIC) is None
    assert produce_error(near.source, TOPIC) is None


@pytest.mark.parametrize("follows", [False, True], ids=["stop", "follow"])
def test_a_mirror_does_not_mix_logs_when_the_middle_follows_lost_records(
    chain: Chain, follows: bool
) -> None:
    near, far = chain.near, chain.far
    near.options = ["--on-truncation", "follow"]
    far.options = near.options if follows else []
    near.create_link(PATTERN)
    far.create_link(PATTERN)
    near.create_topic(TOPIC)
    for value in values("old", 5):
        near.produce(TOPIC, [value])
    chain.await_mirrored(TOPIC)
    # The third cluster fetches again only when the log of the second one is longer than before.
    chain.third.pause()
    chain.first.kill()
    (log_file,) = (chain.first.data_directory / f"{TOPIC}-0").glob("*.log")
    with log_file.open("r+b") as file:
        file.truncate(log_file.stat().st_size - 1)
    chain.first.start()
    for value in values("new", 5):
        near.produce(TOPIC, [value])
    near.await_mirrored(TOPIC)
    chain.third.resume()

    old = [each.encode() for each in values("old", 5)]
    new = old[:4] + [each.encode() for each in values("new", 5)]
    assert [each[3] for each in read_all(near.target, TOPIC)] == new
    if follows:
        eventually_equal(lambda: [each[3] for each in read_all(far.target, TOPIC)], new)
        first, second, third = chain.batches(TOPIC)
        assert first == second == third
    else:
        eventually(lambda: far.state(TOPIC).get("state") == "stopped")
        assert "lost records" in far.state(TOPIC)["reason"]
        assert [each[3] for each in read_all(far.target, TOPIC)] == old


def test_topics_go_around_a_ring_once_and_do_not_come_back_after_their_deletion(
    chain: Chain,
) -> None:
    near, far, back = chain.near, chain.far, chain.pair(chain.third, chain.first)
    for linked in (near, far, back):
        linked.create_link(PATTERN)
    around = {TOPIC: [near, far, back], "orders-us": [far, back, near]}
    for topic, links in around.items():
        links[0].create_topic(topic)
        links[0].produce(topic, values("record", 10))
        for linked in links[:2]:
            linked.await_mirrored(topic)
        eventually(lambda each=links[2], name=topic: each.state(name).get("state") == "conflict")
        first, second, third = chain.batches(topic)
        assert first == second == third

    back.target_admin.delete_topics([TOPIC])[TOPIC].result(SECONDS)
    # The conflict ends with the topic, and the ring goes on with other topics.
    eventually(lambda: back.state(TOPIC) == {})
    near.create_topic("orders-later")
    near.produce("orders-later", values("later", 3))
    chain.await_mirrored("orders-later")
    eventually(lambda: back.state("orders-later").get("state") == "conflict")
    assert TOPIC not in back.target_admin.list_topics(timeout=SECONDS).topics
    assert back.state(TOPIC) == {}
    assert near.end(near.target, TOPIC) == far.end(far.target, TOPIC) == 10
