"""Clients of both protocols come and go at random: the group changes its protocol with them.

No partition has two owners at any time, and each one has an owner at the end.
"""

from __future__ import annotations

import random

import pytest

from unit.coordinator.consumers_world import ConsumersWorld
from unit.coordinator.group.consumer.mixed_members import ClassicClient, ConsumerClient

TOPICS = {"a": 5, "b": 3, "c": 1}
STEP_MS = 500
# Long enough for the sessions of clients that have died, and for the delay of new classic groups.
CALM_STEPS = 200

Client = ClassicClient | ConsumerClient


class Crowd:
    """The living clients of one group."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = ConsumersWorld()
        self.world.topic_sizes = TOPICS
        for topic, count in TOPICS.items():
            self.world.create_topic(topic, count)
        self.is_cooperative = seed % 2 == 0
        self.clients: list[Client] = []
        self.joined = 0
        self.kinds: set[str] = set()

    def add(self, topics: list[str], *, is_classic: bool) -> None:
        self.joined += 1
        if is_classic:
            client = ClassicClient(self.world, topics, is_cooperative=self.is_cooperative)
        else:
            client = ConsumerClient(self.world, f"m{self.joined}", topics)
        self.clients.append(client)

    def act(self) -> None:
        """Let one thing happen by chance."""
        chance = self.chance
        match chance.randrange(8):
            case 0 | 1 if len(self.clients) < 5:
                topics = chance.sample(sorted(TOPICS), chance.randint(1, 3))
                self.add(topics, is_classic=chance.random() < 0.5)
            case 2 if self.clients:
                self.clients.pop(chance.randrange(len(self.clients))).leave()
            case 3 if self.clients:
                # It dies without leaving. Its session has to end.
                self.clients.pop(chance.randrange(len(self.clients)))
            case 4 if self.clients and chance.random() < 0.3:
                self.world.restart()

    def step(self) -> None:
        for client in self.chance.sample(self.clients, len(self.clients)):
            client.step()
            self.check_owners()
        self.world.run_for(STEP_MS)
        self.kinds |= {each[3] for each in self.world.list_groups()}

    def check_owners(self) -> None:
        owned = [each for client in self.clients for each in client.owned]
        assert len(owned) == len(set(owned)), sorted(owned)

    def settle(self) -> None:
        """Let nothing happen until all partitions have owners."""
        wanted = {(topic, index) for topic, count in TOPICS.items() for index in range(count)}
        for _ in range(CALM_STEPS):
            self.step()
            if set().union(*(client.owned for client in self.clients)) == wanted:
                return
        raise AssertionError([(type(each).__name__, each.owned) for each in self.clients])


@pytest.mark.parametrize("seed", range(30))
def test_partitions_never_have_two_owners_while_the_protocol_changes(seed: int) -> None:
    crowd = Crowd(seed)
    for _ in range(80):
        crowd.act()
        crowd.step()
    crowd.add(sorted(TOPICS), is_classic=seed % 3 == 0)
    crowd.settle()
    for client in crowd.clients:
        client.leave()
    crowd.world.run_for(60_000)
    assert crowd.world.coordinator.memory.held_bytes == 0


@pytest.mark.parametrize("is_cooperative", [True, False], ids=["cooperative", "eager"])
def test_a_group_is_rolled_to_the_other_protocol_and_back(is_cooperative: bool) -> None:
    crowd = Crowd(0 if is_cooperative else 1)
    for _ in range(3):
        crowd.add(sorted(TOPICS), is_classic=True)
    crowd.settle()
    for is_classic in (False, True):
        for _ in range(3):
            crowd.clients.pop(0).leave()
            crowd.add(sorted(TOPICS), is_classic=is_classic)
            crowd.settle()
        kind = "classic" if is_classic else "consumer"
        assert [each[3] for each in crowd.world.list_groups()] == [kind]
