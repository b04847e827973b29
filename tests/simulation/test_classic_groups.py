"""Members of the client's classic protocol in a group on a whole broker, in virtual time."""

from __future__ import annotations

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.config import ClientConfig
from unit.client.group.group_host import GroupHost
from unit.server.simulated_broker import HOST, PORT, SimulatedBroker

STRATEGIES = ["range", "roundrobin", "sticky", "cooperative-sticky"]


class SimulatedGroup:
    """A broker with a topic "t" of 12 partitions, and members on hosts of their own."""

    def __init__(self, seed: int, strategy: str) -> None:
        self.broker = SimulatedBroker(seed, group_initial_rebalance_delay_ms="0")
        self.broker.make_topic("t", 12)
        self.world = self.broker.world
        self.strategy = strategy
        self.members: list[GroupHost] = []

    def start(self, **keys: object) -> GroupHost:
        runtime = self.world.host(f"member-{len(self.members)}").runtime
        given = {
            "bootstrap.servers": f"{HOST}:{PORT}",
            "group.id": "g",
            "partition_assignment_strategy": self.strategy,
        }
        host = GroupHost(Cluster(runtime, ClientConfig.parse(given | keys)))
        self.members.append(host)
        host.poll_on()
        return host

    def settle(self, limit_ms: float = 120_000) -> None:
        """Wait until all that poll have parts of the topic, each partition one owner."""

        def is_settled() -> bool:
            polling = [each for each in self.members if each.polls]
            owned = sorted(number for each in polling for number in each.owned)
            stable = all(each.membership.is_stable for each in polling)
            return stable and owned == list(range(12)) and all(each.owned for each in polling)

        assert self.world.run_until(is_settled, limit_ms), [
            (each.told, each.raised, each.membership.generation) for each in self.members
        ]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(2))
def test_members_come_and_go_and_every_partition_has_one_owner(seed: int, strategy: str) -> None:
    group = SimulatedGroup(seed, strategy)
    group.start()
    group.settle()
    group.start()
    group.start(group_instance_id="static")
    group.settle()
    group.members[0].leave()
    group.settle()
    assert all(not each.raised for each in group.members)
