"""Which broker is asked what any of them can answer."""

from __future__ import annotations

from barnabas.client.cluster import Cluster
from barnabas.client.config import ClientConfig
from barnabas.client.metadata_cache import NodeInfo
from barnabas.sim.world import sim_runtime


def test_another_broker_is_asked_first_each_time_for_one_may_be_cut_off() -> None:
    _, runtime = sim_runtime(1)
    cluster = Cluster(runtime, ClientConfig.parse({"bootstrap.servers": "a:1"}))
    cluster.metadata.nodes = {number: NodeInfo(number, "h", number) for number in (1, 2, 3)}
    first = [cluster._candidates()[0].id for _ in range(6)]
    assert sorted(first[:3]) == [1, 2, 3]
    assert first[3:] == first[:3]
    cluster.close()
