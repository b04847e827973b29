"""The schema registry as processes: beside Barnabas and Apache Kafka, one leader, restarts."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.client.aio.session import AsyncSession
from barnabas.client.config import ClientConfig
from barnabas.client.errors import ClientError
from barnabas.client.facade import Client
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.registry.leader.fenced_writer import FencedWriter, NotFencedError
from barnabas.testing.broker_process import BrokerProcess
from barnabas.testing.registry_process import RegistryProcess
from jvm.kafka_process import KafkaProcess
from registry_requests import (
    QUICK_GROUPS,
    QUICK_SESSION,
    register,
    request,
)
from waiting import eventually

Broker = BrokerProcess | KafkaProcess
MakeNodes = Callable[..., list[RegistryProcess]]
_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    kind = KafkaProcess if request.param == "kafka" else BrokerProcess
    process = kind(tmp_path_factory.mktemp(request.param), QUICK_GROUPS)
    process.start()
    try:
        yield process
    finally:
        process.kill()


@pytest.fixture
def make_nodes(broker: Broker, tmp_path: Path) -> Iterator[MakeNodes]:
    """Makes started nodes of one registry, whose topic and group no other test has."""
    name = f"registry-{next(_numbers)}"
    made: list[RegistryProcess] = []

    def make(count: int = 1, *arguments: str) -> list[RegistryProcess]:
        words = ["--topic", f"_{name}", "--group", name, *QUICK_SESSION, *arguments]
        nodes = [
            RegistryProcess(broker.bootstrap, tmp_path / f"node-{len(made) + number}", words)
            for number in range(count)
        ]
        made.extend(nodes)
        for node in nodes:
            node.launch()
        for node in nodes:
            node.await_ready()
        return nodes

    yield make
    for node in made:
        node.close()


def schema(number: int) -> str:
    return f'{{"type":"fixed","name":"f{number}","size":{number}}}'


def versions(node: RegistryProcess, subject: str) -> object:
    return request("GET", f"{node.url}/subjects/{subject}/versions")[1]


def leads(node: RegistryProcess) -> bool:
    return "this process leads" in node.log()


def test_a_restarted_registry_has_its_schemas(make_nodes: MakeNodes) -> None:
    (node,) = make_nodes()
    assert register(node.url, "a", schema(1)) == 1
    request("PUT", f"{node.url}/config/a", {"compatibility": "NONE"})
    assert register(node.url, "a", schema(2)) == 2
    request("DELETE", f"{node.url}/subjects/a/versions/1")
    assert node.stop() == 0
    node.start()
    assert versions(node, "a") == [2]
    assert request("GET", f"{node.url}/config/a")[1] == {"compatibilityLevel": "NONE"}
    assert register(node.url, "a", schema(3)) == 3


@pytest.mark.nightly
def test_followers_forward_changes_and_read_them(make_nodes: MakeNodes) -> None:
    nodes = make_nodes(2, "--log-level", "info")
    ids = [register(node.url, "a", schema(1)) for node in nodes]
    assert ids == [1, 1]
    for node in nodes:
        assert request("PUT", f"{node.url}/config/a", {"compatibility": "NONE"})[0] == 200
    assert [register(node.url, "a", schema(2 + i)) for i, node in enumerate(nodes)] == [2, 3]
    for node in nodes:
        eventually(lambda node=node: versions(node, "a") == [1, 2, 3])  # type: ignore[misc] # bound now
    assert [leads(node) for node in nodes].count(True) == 1


def test_a_killed_leader_is_replaced_without_a_loss(make_nodes: MakeNodes) -> None:
    nodes = make_nodes(2, "--log-level", "info")
    assert register(nodes[0].url, "a", schema(1)) == 1
    (leader,) = [node for node in nodes if leads(node)]
    (follower,) = [node for node in nodes if node is not leader]
    leader.kill()
    assert request("GET", f"{follower.url}/subjects")[1] == ["a"]

    def registered() -> bool:
        path = f"{follower.url}/subjects/b/versions"
        return request("POST", path, {"schema": schema(2)}) == (200, {"id": 2})

    eventually(registered)
    assert versions(follower, "a") == [1]
    leader.start()
    assert register(leader.url, "c", schema(3)) == 3


@pytest.mark.nightly
def test_a_paused_leader_does_not_write_when_it_goes_on(make_nodes: MakeNodes) -> None:
    nodes = make_nodes(2, "--log-level", "info")
    assert register(nodes[0].url, "a", schema(1)) == 1
    (leader,) = [node for node in nodes if leads(node)]
    (follower,) = [node for node in nodes if node is not leader]
    leader.pause()
    eventually(lambda: leads(follower))
    assert register(follower.url, "b", schema(2)) == 2
    leader.resume()
    # The old leader does not know yet that it was deposed; its write fails, or it is forwarded.
    path = f"{leader.url}/subjects/c/versions"
    answers = [request("POST", path, {"schema": schema(3)}) for _ in range(3)]
    assert {status for status, _ in answers} <= {200, 500}
    eventually(lambda: request("POST", path, {"schema": schema(3)}) == (200, {"id": 3}))
    for node in nodes:
        eventually(lambda node=node: versions(node, "c") == [1])  # type: ignore[misc] # bound now
        assert request("GET", f"{node.url}/schemas/ids/2")[1] == {"schema": schema(2)}


def test_records_that_no_registry_writes_are_skipped(broker: Broker, make_nodes: MakeNodes) -> None:
    (node,) = make_nodes()
    register(node.url, "a", schema(1))
    topic = f"_registry-{next(_numbers) - 1}"
    with Client(broker.bootstrap) as client, client.producer() as producer:
        for key, value in [(b"junk", b"junk"), (b'{"keytype":"NEW","magic":9}', b"{}"), (b"", b"")]:
            producer.send(topic, value, key, 0)
    assert register(node.url, "b", schema(2)) == 2
    node.restart()
    assert request("GET", f"{node.url}/subjects")[1] == ["a", "b"]
    # Once while it ran, and once after the restart.
    assert node.log().count("a record is skipped") == 6


class SessionOwner:
    """The owner of a session, which has nothing to do at its end."""

    async def on_end_of_loop(self) -> None: ...


def test_a_deposed_writer_cannot_append(broker: Broker) -> None:
    topic = f"fenced-{next(_numbers)}"
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 1, 1, {"cleanup.policy": "compact"})

    async def race() -> None:
        config = ClientConfig.parse({"bootstrap_servers": broker.bootstrap})
        owner = SessionOwner()
        session = AsyncSession(config, "writer", owner.on_end_of_loop)
        old, new = (FencedWriter(session, TopicPartition(topic, 0), topic) for _ in range(2))
        await old.fence()
        assert await old.append([(b"a", b"1"), (b"b", b"2")]) == 1
        await new.fence()
        assert await old.append([(b"a", b"3")]) == 2
        assert await new.append([(b"noop", None)]) == 3
        with pytest.raises(ClientError) as caught:
            await old.append([(b"a", b"4")])
        assert caught.value.error_code is ErrorCode.INVALID_PRODUCER_EPOCH
        with pytest.raises(NotFencedError):
            await old.append([(b"a", b"5")])
        assert await new.append([(b"a", b"6")]) == 4
        await session.close()

    asyncio.run(race())


def test_a_topic_that_deletes_schemas_is_refused(broker: Broker, tmp_path: Path) -> None:
    topic = f"deleting-{next(_numbers)}"
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 1, 1, {"cleanup.policy": "delete"})
    node = RegistryProcess(broker.bootstrap, tmp_path, ["--topic", topic])
    node.launch()
    assert node.wait() == 1
    assert "cleanup.policy=delete, which deletes schemas" in node.log()
