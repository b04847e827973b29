"""Random sequences of heartbeats: no partition has two owners, and all are assigned at the end."""

from __future__ import annotations

import random

import pytest

from barnabas.protocol.errors import ErrorCode
from unit.coordinator.consumers_world import ConsumersWorld

TOPICS = {"a": 3, "b": 2, "c": 1}


class Member:
    """A well-behaved client: it uses its assigned partitions, and revokes the others."""

    def __init__(self, world: ConsumersWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.epoch = 0
        self.owned: dict[str, set[int]] = {}

    def beat(self, *topics: str) -> None:
        fields = {"subscribed_topic_names": list(topics)} if topics else {}
        if self.epoch == 0:
            answer = self.world.subscribe(self.name, *topics)
        else:
            answer = self.world.beat(self.name, self.epoch, self.owned, **fields)
        assert answer.error_code == ErrorCode.NONE, answer
        self.epoch = answer.member_epoch
        assigned = self.world.owned(answer)
        if assigned is not None:
            self.owned = assigned


def check_owners(members: list[Member]) -> None:
    owned = [
        (topic, index)
        for member in members
        for topic, indexes in member.owned.items()
        for index in indexes
    ]
    assert len(owned) == len(set(owned)), owned


@pytest.mark.parametrize("seed", range(40))
def test_no_partition_has_two_owners_and_all_have_one_at_the_end(seed: int) -> None:
    chance = random.Random(seed)
    world = ConsumersWorld()
    for topic, count in TOPICS.items():
        world.create_topic(topic, count)
    members: list[Member] = []
    for step in range(60):
        match chance.randrange(6):
            case 0 if len(members) < 5:
                members.append(Member(world, f"m{step}"))
                members[-1].beat(*chance.sample(sorted(TOPICS), chance.randint(1, 3)))
            case 1 if len(members) > 1:
                leaving = members.pop(chance.randrange(len(members)))
                assert world.beat(leaving.name, -1).error_code == ErrorCode.NONE
            case 2 if members:
                chosen = chance.choice(members)
                chosen.beat(*chance.sample(sorted(TOPICS), chance.randint(1, 3)))
            case 3 if step % 20 == 7:
                world.restart()
            case _ if members:
                chance.choice(members).beat()
        check_owners(members)
    if not members:
        members.append(Member(world, "last"))
    for member in members:
        member.beat("a", "b", "c")
    for _ in range(4):
        for member in members:
            member.beat()
            check_owners(members)
    found = {topic: set().union(*(m.owned.get(topic, set()) for m in members)) for topic in TOPICS}
    assert found == {topic: set(range(count)) for topic, count in TOPICS.items()}
    assert world.state() == "Stable"
