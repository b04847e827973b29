"""Which broker is asked what any of them can answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.client.cluster import Cluster
from barnabas.client.config import ClientConfig
from barnabas.client.errors import ClientError, UnusableResponseError
from barnabas.client.handing_over import hand_over
from barnabas.client.metadata_cache import NodeInfo
from barnabas.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from barnabas.sim.world import sim_runtime

if TYPE_CHECKING:
    from barnabas.client.connections import Call


def test_another_broker_is_asked_first_each_time_for_one_may_be_cut_off() -> None:
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
    """A cluster whose only broker answers at once, as the test says."""

    def __init__(self, response: object) -> None:
        _, runtime = sim_runtime(1)
        self.cluster = Cluster(runtime, ClientConfig.parse({"bootstrap.servers": "a:1"}))

        def answer(_info: object, call: Call) -> None:
            hand_over(call.on_done, response, "METADATA", "a:1")  # type: ignore[arg-type]

        self.cluster._connections.call = answer  # type: ignore[method-assign]


def test_who_cannot_use_the_metadata_is_told_so_and_the_others_have_theirs() -> None:
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


def test_metadata_that_cannot_be_used_is_an_error_of_those_who_asked() -> None:
    unusable: Any = MetadataResponse(brokers=None, topics=[])  # type: ignore[arg-type]
    cluster = Answering(unusable).cluster
    ended: list[ClientError | None] = []
    for _ in range(2):
        cluster.refresh(["t"], lambda _none, error: ended.append(error))
    assert [type(error) for error in ended] == [UnusableResponseError] * 2
    cluster.close()
