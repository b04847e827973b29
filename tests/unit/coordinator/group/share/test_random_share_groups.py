"""Random storms of share groups: members share all partitions of the topics that they read."""

from __future__ import annotations

import random

import pytest

from barnabas.protocol.errors import ErrorCode
from unit.coordinator.shares_world import SharesWorld

TOPICS = {"a": 3, "b": 2, "c": 1}
ROUNDS = 200
SESSION_MS = 45_000

Partitions = dict[str, set[int]]


class Member:
    """A client that follows its assignments."""

    def __init__(self, world: SharesWorld, name: str, topics: list[str]) -> None:
        self.world = world
        self.name = name
        self.topics = topics
        self.epoch = 0
        self.assigned: Partitions = {}

    def beat(self, *topics: str) -> None:
        if topics:
            self.topics = list(topics)
        answer = self.world.share_beat(self.name, self.epoch, *(topics or self._given()))
        if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.epoch, self.assigned = 0, {}
            answer = self.world.share_beat(self.name, 0, *self.topics)
        assert answer.error_code == ErrorCode.NONE, answer
        assert answer.member_epoch >= self.epoch
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.assigned = {
                each.topic_id.rstrip(b"-").decode(): set(each.partitions)
                for each in answer.assignment.topic_partitions
            }
        assert self.assigned.keys() <= set(self.topics)

    def _given(self) -> list[str]:
        return [] if self.epoch else self.topics


def drawn(chance: random.Random) -> list[str]:
    return chance.sample(sorted(TOPICS), chance.randint(1, 3))


@pytest.mark.parametrize("seed", range(8))
def test_all_partitions_have_members_after_a_storm(seed: int) -> None:
    chance = random.Random(seed)
    world = SharesWorld()
    for topic, count in TOPICS.items():
        world.create_topic(topic, count)
    members: list[Member] = []
    for step in range(ROUNDS):
        match chance.randrange(7):
            case 0 if len(members) < 6:
                members.append(Member(world, f"m{step}", drawn(chance)))
                members[-1].beat()
            case 1 if len(members) > 1:
                leaving = members.pop(chance.randrange(len(members)))
                assert world.share_beat(leaving.name, -1).error_code == ErrorCode.NONE
            case 2 if members:
                chance.choice(members).beat(*drawn(chance))
            case 3 if len(members) > 1 and step % 10 == 3:
                # Killed: its session ends.
                members.pop(chance.randrange(len(members)))
                for _ in range(10):
                    world.run_for(SESSION_MS / 9)
                    for each in members:
                        each.beat()
            case 4 if step % 20 == 7:
                world.restart()
            case _ if members:
                chance.choice(members).beat()
    members.append(Member(world, "last", sorted(TOPICS)))
    for _ in range(4):
        for each in members:
            each.beat()
    found = {
        topic: set().union(*(each.assigned.get(topic, set()) for each in members))
        for topic in TOPICS
    }
    assert found == {topic: set(range(count)) for topic, count in TOPICS.items()}
    described = world.describe_shares()
    assert described.group_state == "Stable"
    assert {each.member_id for each in described.members} == {each.name for each in members}
    assert {each.member_epoch for each in described.members} == {described.group_epoch}
