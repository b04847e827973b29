"""Choice of the broker for requests that any broker can handle."""

from __future__ import annotations

from typing import Any

from barnabas.client.config import ClientConfig
from barnabas.client.connections.cluster import ANY_NODE, Cluster
from barnabas.client.connections.connections import Call, deliver_response
from barnabas.client.connections.metadata_cache import NodeInfo
from barnabas.client.errors import ClientError, UnusableResponseError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from barnabas.sim.world import SimWorld, sim_runtime
from unit.client.group.scripted_coordinator import ScriptedCoordinator


def test_each_call_to_any_node_begins_with_another_broker() -> None:
    _, runtime = sim_runtime(1)
    cluster = Cluster(runtime, ClientConfig.parse({"bootstrap.servers": "a:1"}))
    cluster.metadata.nodes = {number: NodeInfo(number, "h", number) for number in (1, 2, 3)}
    first = [cluster._candidates()[0].id for _ in range(6)]
    assert sorted(first[:3]) == [1, 2, 3]
    assert first[3:] == first[:3]
    cluster.close()


def metadata_of(*brokers: int) -> MetadataResponse:
    named = [MetadataResponseBroker(node_id=n, host="h", port=n) for n in brokers]
    return MetadataResponse(brokers=named, topics=[])


class Answering:
    """A cluster whose only broker responds at once, as the test sets it."""

    def __init__(self, response: object) -> None:
        _, runtime = sim_runtime(1)
        self.cluster = Cluster(runtime, ClientConfig.parse({"bootstrap.servers": "a:1"}))

        def answer(_info: object, call: Call) -> None:
            deliver_response(call.on_done, response, "METADATA", "a:1")  # type: ignore[arg-type]

        self.cluster._connections.call = answer  # type: ignore[method-assign]


def test_a_callback_that_cannot_use_the_metadata_fails_alone() -> None:
    cluster = Answering(metadata_of(1)).cluster
    first: list[ClientError | None] = []
    second: list[ClientError | None] = []
    heard: list[bool] = []

    def fail(_none: None, error: ClientError | None) -> None:
        first.append(error)
        if error is None:
            raise KeyError("t")

    def listen() -> None:
        heard.append(True)
        raise RuntimeError("of a listener")

    cluster.on_update(listen)
    # Both wait for the same answer.
    cluster._refreshing = True
    cluster.refresh(["t"], fail)
    cluster.refresh(["t"], lambda _none, error: second.append(error))
    cluster._refreshing = False
    cluster._maybe_refresh()
    assert first[0] is None
    assert isinstance(first[1], UnusableResponseError)
    assert second == [None]
    assert heard == [True]
    cluster.close()


def test_unusable_metadata_is_an_error_of_its_callers() -> None:
    unusable: Any = MetadataResponse(brokers=None, topics=[])  # type: ignore[arg-type]
    cluster = Answering(unusable).cluster
    ended: list[ClientError | None] = []
    for _ in range(2):
        cluster.refresh(["t"], lambda _none, error: ended.append(error))
    assert [type(error) for error in ended] == [UnusableResponseError] * 2
    cluster.close()


def test_a_response_that_the_callback_cannot_use_is_an_error_of_the_call() -> None:
    world = SimWorld(1)
    broker = ScriptedCoordinator(world)
    cluster = Cluster(
        world.host("c").runtime, ClientConfig.parse({"bootstrap.servers": broker.address})
    )
    told: list[ClientError | None] = []

    def on_done(response: object, error: ClientError | None) -> None:
        told.append(error)
        if response is not None:
            raise KeyError("t")

    def build(_version: int) -> MetadataRequest:
        return MetadataRequest(topics=[], allow_auto_topic_creation=False)

    cluster.call(ANY_NODE, Call(ApiKey.METADATA, build, on_done))
    assert world.run_until(lambda: len(told) == 2)
    assert told[0] is None
    assert isinstance(told[1], UnusableResponseError)
    # The connection is none the worse for it.
    ended: list[ClientError | None] = []
    cluster.refresh((), lambda _none, error: ended.append(error))
    assert world.run_until(lambda: bool(ended))
    assert ended == [None]
    cluster.close()
