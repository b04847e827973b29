"""Commands for links that are killed at each step, and repeated: nothing is lost."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from barnabas import Client
from barnabas.cli.links.mirrors import read_settings, read_table
from barnabas.testing.broker_process import BROKER_SETTINGS
from barnabas.testing.cluster_process import ClusterProcess
from conformance.linked_clusters import SECONDS, Linked, batch_bytes
from conformance.stopped_commands import Changes
from waiting import eventually, eventually_equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.conformance

SETTINGS = {**BROKER_SETTINGS, "offsets.topic.num.partitions": "2"}


class Case:
    """A topic with a link of its own, in clusters that all cases share."""

    def __init__(self, clusters: Clusters, directory: Path) -> None:
        number = next(clusters.numbers)
        self.clusters, self.directory = clusters, directory
        self.topic, self.link, self.group = f"orders-{number}", f"prod-{number}", f"group-{number}"
        self.there = Linked(clusters.source.bootstrap, clusters.target.bootstrap, directory)
        self.back = Linked(clusters.target.bootstrap, clusters.source.bootstrap, directory)
        self.there.create_topic(self.topic)
        self.produce(clusters.source, "first", 10)
        self.own_client.commit_offsets(self.group, {(self.topic, 0): 4})

    @property
    def own_client(self) -> Client:
        return self.clusters.clients[0]

    @property
    def target_client(self) -> Client:
        return self.clusters.clients[1]

    def produce(self, cluster: ClusterProcess, prefix: str, records: int) -> None:
        """Produce each record in a batch of its own."""
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for number in range(records):
            producer.produce(self.topic, f"{prefix}-{number}".encode())
            assert producer.flush(SECONDS) == 0

    def create_words(self) -> list[str]:
        file = self.directory / "source.properties"
        file.write_text(f"bootstrap.servers={self.clusters.source.bootstrap}\n")
        words = ["--topics", self.topic, "--groups", self.group, "--group-interval", "200"]
        return ["links", "create", self.link, "--config", str(file), *words]

    def reverse_words(self) -> list[str]:
        file = self.directory / "here.properties"
        file.write_text(f"bootstrap.servers={self.clusters.target.bootstrap}\n")
        return ["links", "reverse", self.link, "--config", str(file), "--discard", "--yes"]

    def mirror(self) -> None:
        self.there.shell.ok(*self.create_words())
        self.there.await_mirrored(self.topic)

    def promote(self) -> None:
        self.mirror()
        self.there.shell.ok("links", "promote", self.link)

    def reverse(self) -> None:
        self.promote()
        self.there.shell.ok(*self.reverse_words())
        self.back.await_mirrored(self.topic)

    def stops(self, count: int, *words: str) -> bool:
        return self.clusters.changes.stops(self.there.shell, count, *words)

    def state(self, client: Client) -> str:
        mirror = read_table(client).mirrors.get(self.topic)
        return "" if mirror is None else str(mirror.state)

    def committed(self, client: Client) -> int:
        found = client.committed(self.group, [(self.topic, 0)])
        return found[self.topic, 0].offset if found else -1

    def assert_same_bytes(self) -> None:
        own, theirs = (
            batch_bytes(each.node(1).data_directory, self.topic, 0)
            for each in (self.clusters.target, self.clusters.source)
        )
        assert own == theirs

    def close(self) -> None:
        for linked in (self.there, self.back):
            linked.shell.run_in_process("links", "delete", self.link, "--force", "--yes")


class Clusters:
    """The source, the cluster of the links, and the relays in front of both."""

    def __init__(self, source: ClusterProcess, target: ClusterProcess, changes: Changes) -> None:
        self.source, self.target, self.changes = source, target, changes
        self.clients = Client(source.bootstrap), Client(target.bootstrap)
        self.numbers = count(1)


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    changes = Changes()
    directory = tmp_path_factory.mktemp("clusters")
    with (
        ClusterProcess(1, 0, directory / "source", SETTINGS, changes) as source,
        ClusterProcess(1, 0, directory / "target", SETTINGS, changes) as target,
    ):
        made = Clusters(source, target, changes)
        yield made
        for client in made.clients:
            client.close()
    changes.close()


@pytest.fixture
def cases(clusters: Clusters, tmp_path: Path) -> Iterator[Iterator[Case]]:
    """New cases without end. They are deleted after the test."""
    made: list[Case] = []

    def make() -> Iterator[Case]:
        while True:
            made.append(Case(clusters, tmp_path))
            yield made[-1]

    yield make()
    for case in made:
        case.close()


def test_create(cases: Iterator[Case]) -> None:
    for changes, case in enumerate(cases):
        is_stopped = case.stops(changes, *case.create_words())
        case.there.shell.ok(*case.create_words())
        case.there.await_mirrored(case.topic)
        if not is_stopped:
            assert changes == 1
            break


def test_promote(cases: Iterator[Case]) -> None:
    for changes, case in enumerate(cases):
        case.mirror()
        words = ["links", "promote", case.link]
        is_stopped = case.stops(changes, *words)
        case.there.shell.ok(*words)
        assert case.state(case.target_client) == "promoted"
        assert case.committed(case.target_client) == 4
        case.produce(case.clusters.target, "second", 1)
        assert case.there.end(case.there.target, case.topic) == 11
        if not is_stopped:
            assert changes == 3
            break


def test_reverse(cases: Iterator[Case]) -> None:
    for changes, case in enumerate(cases):
        case.promote()
        case.produce(case.clusters.source, "lost", 5)
        case.produce(case.clusters.target, "second", 8)
        is_stopped = case.stops(changes, *case.reverse_words())
        case.there.shell.ok(*case.reverse_words())
        case.back.await_mirrored(case.topic)
        case.assert_same_bytes()
        assert case.there.end(case.there.target, case.topic) == 18
        assert read_settings(case.target_client, case.link)["state"] == "reversed"
        policies = [key for key in read_settings(case.own_client, case.link) if "truncation" in key]
        assert policies == []
        if not is_stopped:
            assert changes == 4
            break


def test_a_reversal_that_is_given_up_leaves_topics_writable(cases: Iterator[Case]) -> None:
    case = next(cases)
    case.promote()
    case.produce(case.clusters.source, "lost", 5)
    case.produce(case.clusters.target, "second", 8)
    assert case.stops(1, *case.reverse_words())
    assert case.state(case.own_client) == "paused"
    words = [each for each in case.reverse_words() if each != "--discard"]
    refused = case.there.shell.run_in_process(*words)
    assert refused.returncode == 1
    assert "5 records" in refused.stderr
    eventually_equal(lambda: case.state(case.own_client), "promoted")
    case.produce(case.clusters.source, "more", 1)
    assert case.there.end(case.there.source, case.topic) == 16


def test_failback(cases: Iterator[Case]) -> None:
    for changes, case in enumerate(cases):
        case.reverse()
        case.produce(case.clusters.target, "second", 8)
        case.target_client.commit_offsets(case.group, {(case.topic, 0): 17})
        words = ["links", "failback", case.link]
        is_stopped = case.stops(changes, *words)
        case.there.shell.ok(*words)
        assert case.committed(case.own_client) == 17
        assert case.state(case.own_client) == "promoted"
        assert case.there.end(case.there.source, case.topic) == 18
        case.produce(case.clusters.source, "third", 2)
        case.there.await_mirrored(case.topic)
        case.assert_same_bytes()
        assert read_settings(case.own_client, case.link)["state"] == "reversed"
        if not is_stopped:
            assert changes == 6
            break


def test_delete(cases: Iterator[Case]) -> None:
    for changes, case in enumerate(cases):
        case.mirror()
        words = ["links", "delete", case.link, "--force", "--yes"]
        is_stopped = case.stops(changes, *words)
        if is_stopped:
            case.there.shell.ok(*words)
        eventually_equal(lambda made=case: read_settings(made.target_client, made.link), {})
        eventually(lambda made=case: made.state(made.target_client) == "")
        case.produce(case.clusters.target, "second", 1)
        assert case.there.end(case.there.target, case.topic) == 11
        if not is_stopped:
            assert changes == 2
            break
