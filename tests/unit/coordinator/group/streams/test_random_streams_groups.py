"""Random storms of streams groups: no task has two owners, and at the end each has one."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.streams_groups import StreamsGroupHeartbeatResponse
from unit.coordinator.streams_world import StreamsWorld, Tasks, by_subtopology, topology

TASKS = 6
ROUNDS = 200
SESSION_MS = 45_000
TOPOLOGY = topology("in", changelog="log")


class Instance:
    """A well-behaved client: it runs its tasks, and closes the others before it reports that."""

    def __init__(self, world: StreamsWorld, name: str, process: str) -> None:
        self.world = world
        self.name = name
        self.process = process
        self.epoch = 0
        self.active: Tasks = {}
        self.standby: Tasks = {}

    def beat(self) -> None:
        answer = self._sent()
        if answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self.epoch, self.active, self.standby = 0, {}, {}
            answer = self._sent()
        assert answer.error_code == ErrorCode.NONE, answer
        self.epoch = answer.member_epoch
        active, standby = by_subtopology(answer.active_tasks), by_subtopology(answer.standby_tasks)
        self.active = self.active if active is None else active
        self.standby = self.standby if standby is None else standby

    def _sent(self) -> StreamsGroupHeartbeatResponse:
        return self.world.beat_streams(
            self.name,
            self.epoch,
            None if self.epoch else TOPOLOGY,
            owned=self.active,
            standby=self.standby,
            process=None if self.epoch else self.process,
        )


def count_tasks(instances: list[Instance], kind: str) -> Counter[int]:
    return Counter(index for each in instances for index in getattr(each, kind).get("0", ()))


def check_owners(instances: list[Instance]) -> None:
    assert all(count == 1 for count in count_tasks(instances, "active").values())
    for each in instances:
        assert not each.active.get("0", set()) & each.standby.get("0", set()), each.name


@pytest.mark.parametrize("seed", range(8))
def test_no_task_has_two_owners_and_each_has_one_after_a_storm(seed: int) -> None:
    chance = random.Random(seed)
    world = StreamsWorld()
    world.overrides["g"] = {"streams.num.standby.replicas": str(seed % 2)}
    world.create_topic("in", TASKS)
    world.create_topic("log", TASKS)
    instances: list[Instance] = []
    for step in range(ROUNDS):
        match chance.randrange(7):
            case 0 if len(instances) < 5:
                process = f"p{chance.randrange(3)}"
                instances.append(Instance(world, f"m{step}", process))
                instances[-1].beat()
            case 1 if len(instances) > 1:
                leaving = instances.pop(chance.randrange(len(instances)))
                assert world.beat_streams(leaving.name, -1).error_code == ErrorCode.NONE
            case 2 if len(instances) > 1 and step % 10 == 3:
                # Killed: its session ends.
                instances.pop(chance.randrange(len(instances)))
                for _ in range(10):
                    world.run_for(SESSION_MS / 9)
                    for each in instances:
                        each.beat()
            case 3 if step % 20 == 7:
                world.restart()
            case _ if instances:
                chance.choice(instances).beat()
        check_owners(instances)
    if not instances:
        instances.append(Instance(world, "last", "p"))
    for _ in range(8):
        world.run_for(10)
        for each in instances:
            each.beat()
            check_owners(instances)
    assert count_tasks(instances, "active") == dict.fromkeys(range(TASKS), 1)
    processes = len({each.process for each in instances})
    standbys = TASKS if seed % 2 and processes > 1 else 0
    assert count_tasks(instances, "standby").total() == standbys
    assert world.state_of() == "Stable"
