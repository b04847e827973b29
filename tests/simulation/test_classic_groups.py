"""Members of the client's classic protocol in a group of a complete broker, in virtual time."""

from __future__ import annotations

import random

import pytest

from barnabas.client.config import ClientConfig
from barnabas.client.connections.cluster import Cluster
from barnabas.sim.network import NetworkConditions
from unit.client.group.group_host import GroupHost
from unit.server.simulated_broker import HOST, PORT, SimulatedBroker

STRATEGIES = ["range", "roundrobin", "sticky", "cooperative-sticky"]
PARTITIONS = 12
SETTINGS = {"group_initial_rebalance_delay_ms": "0", "group_min_session_timeout_ms": "1000"}


class SimulatedGroup:
    """A broker with a topic "t" of 12 partitions, and members on separate hosts."""

    def __init__(self, seed: int, strategy: str) -> None:
        self.broker = SimulatedBroker(seed, **SETTINGS)
        self.broker.make_topic("t", PARTITIONS)
        self.world = self.broker.world
        self.strategy = strategy
        self.members: list[GroupHost] = []
        self.started = 0

    def start(self, **keys: object) -> GroupHost:
        """Start a member that polls from now on."""
        runtime = self.world.host(f"member-{self.started}").runtime
        self.started += 1
        given = {
            "bootstrap.servers": f"{HOST}:{PORT}",
            "group.id": "g",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 1_000,
            "max.poll.interval.ms": 10_000,
            "request.timeout.ms": 5_000,
            "partition_assignment_strategy": self.strategy,
        }
        host = GroupHost(Cluster(runtime, ClientConfig.parse(given | keys)))
        self.members.append(host)
        host.poll_on()
        return host

    def settle(self, limit_ms: float = 120_000) -> None:
        """Wait until each partition is owned by one polling member, and each member has some."""

        def is_settled() -> bool:
            polling = [each for each in self.members if each.polls]
            owned = sorted(number for each in polling for number in each.owned)
            stable = all(each.membership.is_stable for each in polling)
            return (
                stable and owned == list(range(PARTITIONS)) and all(each.owned for each in polling)
            )

        assert self.world.run_until(is_settled, limit_ms), [
            (each.told, each.raised, each.membership.generation) for each in self.members
        ]

    def check_nothing_is_owned_twice(self) -> None:
        """Check that no two members of one generation own the same partition.

        A removed member that does not know it may still have partitions of others; its commits are
        refused.
        """
        seen: dict[tuple[int, int], str] = {}
        for each in self.members:
            generation_id, member_id = each.membership.generation[1:3]
            if each.polls and each.membership.is_stable:
                for number in each.owned:
                    assert seen.setdefault((generation_id, number), member_id) == member_id


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(2))
def test_every_partition_has_one_owner_while_members_join_and_leave(
    seed: int, strategy: str
) -> None:
    group = SimulatedGroup(seed, strategy)
    group.start()
    group.settle()
    group.start()
    group.start(group_instance_id="static")
    group.settle()
    group.members[0].leave()
    group.settle()
    assert all(not each.raised for each in group.members)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(3))
def test_under_random_failures_every_partition_has_at_most_one_owner(
    seed: int, strategy: str
) -> None:
    group = SimulatedGroup(seed, strategy)
    chance = random.Random(f"{seed} {strategy}")
    group.world.network.conditions = NetworkConditions(delay_max_ms=20.0, reset_chance=0.002)
    for _ in range(3):
        group.start()
    for _ in range(40):
        _random_event(group, chance)
        for _ in range(chance.randint(1, 30)):
            group.world.run_for(100)
            group.check_nothing_is_owned_twice()
    group.world.network.conditions = NetworkConditions()
    group.world.network.heal()
    for each in group.members:
        each.polls = True
    group.settle()
    assert not [error for each in group.members for error in each.raised]


def _random_event(group: SimulatedGroup, chance: random.Random) -> None:
    """Return a random event of a group."""
    member = chance.choice(group.members)
    match chance.randint(0, 7):
        case 0 | 1 if len(group.members) < 6:
            group.start()
        case 2 if len(group.members) > 2:
            member.leave()
            group.members.remove(member)
        case 3 if len(group.members) > 2:
            # As by kill -9: no word, and its connections are gone.
            member.membership.stop()
            member.polls = False
            member.cluster.close()
            group.members.remove(member)
        case 4:
            member.polls = False
        case 5:
            member.polls = True
        case 6:
            number = chance.randrange(group.started)
            group.world.network.partition(HOST, f"member-{number}")
        case _:
            group.world.network.heal()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_continues_after_its_broker_is_killed(strategy: str) -> None:
    group = SimulatedGroup(1, strategy)
    group.start()
    group.start()
    group.settle()
    group.broker.host.kill()
    group.world.run_for(2_000)
    group.broker.restart()
    group.start()
    group.settle()
    assert not [error for each in group.members for error in each.raised]
