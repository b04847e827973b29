"""Mirrors in a cluster of three brokers while leaders on both sides are killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from msgspec.structs import replace

from barnabas import Client
from barnabas.cli.links.mirrors import change, read_table
from barnabas.replication.links.link_table import MirrorState
from barnabas.testing.broker_process import CLUSTER_SETTINGS
from barnabas.testing.cluster_process import ClusterProcess
from conformance.linked_clusters import LINK, SECONDS, Linked, batch_bytes, read_all
from waiting import eventually, eventually_equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC = "orders"
SETTINGS = {**CLUSTER_SETTINGS, "default.replication.factor": "3"}


@pytest.fixture
def source(tmp_path: Path) -> Iterator[ClusterProcess]:
    with ClusterProcess(2, 1, tmp_path / "source", CLUSTER_SETTINGS) as made:
        yield made


@pytest.fixture
def target(tmp_path: Path) -> Iterator[ClusterProcess]:
    with ClusterProcess(3, 0, tmp_path / "target", SETTINGS) as made:
        yield made


def leader_of(bootstrap: str) -> int:
    """Return the leader of partition 0; -1 without one."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = admin.list_topics(TOPIC, timeout=SECONDS).topics[TOPIC]
    return topic.partitions[0].leader if topic.partitions else -1


def in_sync(bootstrap: str) -> int:
    """Return the size of the ISR of partition 0."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = admin.list_topics(TOPIC, timeout=SECONDS).topics[TOPIC]
    return len(topic.partitions[0].isrs) if topic.partitions else 0


def produce(producer: Producer, prefix: str, sent: list[bytes]) -> None:
    for number in range(200):
        value = f"{prefix}-{number}".encode()
        producer.produce(TOPIC, value)
        sent.append(value)
    assert producer.flush(SECONDS) == 0


def linked_topic(source: ClusterProcess, target: ClusterProcess, directory: Path) -> Linked:
    """Create the topic with two replicas, and a link that mirrors it."""
    linked = Linked(source.bootstrap, target.bootstrap, directory)
    topic = NewTopic(TOPIC, 1, 2)
    linked.source_admin.create_topics([topic])[TOPIC].result(SECONDS)
    linked.create_link(TOPIC)
    return linked


def test_a_mirror_survives_killed_leaders_of_both_clusters(
    source: ClusterProcess, target: ClusterProcess, tmp_path: Path
) -> None:
    linked = linked_topic(source, target, tmp_path)
    producer = Producer({"bootstrap.servers": source.bootstrap, "enable.idempotence": True})
    sent: list[bytes] = []
    produce(producer, "first", sent)
    linked.await_mirrored(TOPIC)

    killed = target.node(leader_of(target.bootstrap))
    killed.kill()
    produce(producer, "second", sent)
    linked.await_mirrored(TOPIC)
    killed.start()
    eventually(lambda: in_sync(target.bootstrap) == 3)
    lost = source.node(leader_of(source.bootstrap))
    lost.kill()
    produce(producer, "third", sent)
    linked.await_mirrored(TOPIC)
    lost.start()
    produce(producer, "fourth", sent)
    linked.await_mirrored(TOPIC)

    records = read_all(target.bootstrap, TOPIC)
    assert [record[3] for record in records] == sent
    assert records == read_all(source.bootstrap, TOPIC)
    theirs = batch_bytes(source.node(leader_of(source.bootstrap)).data_directory, TOPIC, 0)
    for node in target.brokers:
        eventually_equal(lambda at=node: batch_bytes(at.data_directory, TOPIC, 0), theirs)


def produce_one_by_one(bootstrap: str, values: list[str]) -> None:
    """Produce each value in a batch of its own. All replicas in the ISR have it then."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": "0"})
    for value in values:
        producer.produce(TOPIC, value.encode())
        assert producer.flush(SECONDS) == 0


def test_a_mirror_follows_an_unclean_election_of_its_source(
    source: ClusterProcess, target: ClusterProcess, tmp_path: Path
) -> None:
    linked = Linked(source.bootstrap, target.bootstrap, tmp_path)
    linked.options = ["--on-truncation", "follow"]
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    topic = NewTopic(TOPIC, 1, 2, config=config)
    linked.source_admin.create_topics([topic])[TOPIC].result(SECONDS)
    linked.create_link(TOPIC)
    produce_one_by_one(source.bootstrap, [f"kept-{number}" for number in range(20)])
    eventually(lambda: in_sync(source.bootstrap) == 2)
    linked.await_mirrored(TOPIC)
    first = source.node(leader_of(source.bootstrap))
    (second,) = [node for node in source.brokers if node is not first]
    second.kill()
    eventually(lambda: in_sync(source.bootstrap) == 1)
    produce_one_by_one(source.bootstrap, [f"lost-{number}" for number in range(30)])
    linked.await_mirrored(TOPIC)
    eventually(lambda: in_sync(target.bootstrap) == 3)
    # Only a replica without the last records is left.
    first.kill()
    second.start()
    eventually(lambda: leader_of(source.bootstrap) >= 0)
    produce_one_by_one(source.bootstrap, [f"new-{number}" for number in range(50)])
    linked.await_mirrored(TOPIC)

    records = read_all(target.bootstrap, TOPIC)
    assert records == read_all(source.bootstrap, TOPIC)
    assert not any(record[3].startswith(b"lost") for record in records)
    theirs = batch_bytes(second.data_directory, TOPIC, 0)
    for node in target.brokers:
        eventually_equal(lambda at=node: batch_bytes(at.data_directory, TOPIC, 0), theirs)


def test_all_replicas_of_the_old_source_discard_records_without_a_mirror(
    source: ClusterProcess, target: ClusterProcess, tmp_path: Path
) -> None:
    linked = linked_topic(source, target, tmp_path)
    produce_one_by_one(source.bootstrap, [f"first-{number}" for number in range(20)])
    linked.await_mirrored(TOPIC)
    linked.shell.ok("links", "promote", LINK)
    produce_one_by_one(source.bootstrap, [f"lost-{number}" for number in range(40)])
    produce_one_by_one(target.bootstrap, [f"second-{number}" for number in range(60)])
    config = tmp_path / "here.properties"
    config.write_text(f"bootstrap.servers={target.bootstrap}\n")
    words = ["links", "reverse", LINK, "--config", str(config)]
    refused = linked.shell.run(*words)
    assert refused.returncode == 1
    assert f"{TOPIC}-0: 40 records from offset 20 on" in refused.stderr
    linked.shell.ok(*words, "--discard", "--yes")
    back = Linked(target.bootstrap, source.bootstrap, tmp_path)
    back.await_mirrored(TOPIC)

    assert read_all(source.bootstrap, TOPIC) == read_all(target.bootstrap, TOPIC)
    theirs = batch_bytes(target.node(leader_of(target.bootstrap)).data_directory, TOPIC, 0)
    assert len(theirs) == 80
    for node in source.brokers:
        eventually_equal(lambda at=node: batch_bytes(at.data_directory, TOPIC, 0), theirs)


def test_the_next_leader_ends_the_promotion_of_a_killed_one(
    source: ClusterProcess, target: ClusterProcess, tmp_path: Path
) -> None:
    linked = linked_topic(source, target, tmp_path)
    linked.produce(TOPIC, ["first"])
    hanging = Producer({"bootstrap.servers": source.bootstrap, "transactional.id": "hanging"})
    hanging.init_transactions(SECONDS)
    hanging.begin_transaction()
    hanging.produce(TOPIC, b"open")
    hanging.flush(SECONDS)
    linked.await_mirrored(TOPIC)
    eventually(lambda: in_sync(target.bootstrap) == 3)
    killed = target.node(leader_of(target.bootstrap))
    with Client(target.bootstrap) as client:
        mirror = read_table(client).mirrors[TOPIC]
        promoting = replace(mirror, state=MirrorState.PROMOTING)
        change(client, {promoting.config_name: promoting.config_value})
    killed.kill()
    eventually(lambda: linked.state(TOPIC).get("state") == "promoted")
    killed.start()
    eventually(lambda: in_sync(target.bootstrap) == 3)
    producer = Producer({"bootstrap.servers": target.bootstrap, "enable.idempotence": True})
    producer.produce(TOPIC, b"own")
    assert producer.flush(SECONDS) == 0

    records = read_all(target.bootstrap, TOPIC)
    assert [record[3] for record in records] == [b"first", b"own"]
    hanging.abort_transaction(SECONDS)
