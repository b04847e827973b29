"""Groups whose members join, leave and die at random, for 200 rounds in virtual time.

After each round: no partition has two owners, epochs and generations never go back, and a stable
group owns all partitions.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from barnabas.coordinator.group import targets
from barnabas.coordinator.group.consumer import consumer_targets
from barnabas.protocol.errors import ErrorCode
from unit.coordinator.consumers_world import ConsumersWorld, Partitions
from unit.coordinator.members_world import MembersWorld, subscription

ROUNDS = 200
MEMBERS_MAX = 8
PARTITIONS = 12
HEARTBEAT_MS = 3_000
# Rounds without changes after which each group must be stable: a dead member's session ends first.
QUIET_ROUNDS = 30


class ConsumerMember:
    """A client of the consumer protocol that uses its assignment and revokes the rest."""

    def __init__(self, world: ConsumersWorld, name: str, instance: str | None) -> None:
        self.world = world
        self.name = name
        self.instance = instance
        self.epoch = 0
        self.owned: Partitions = {}

    def beat(self) -> None:
        before = self.epoch
        if self.epoch == 0:
            answer = self.world.subscribe(self.name, "a", "b", instance_id=self.instance)
        else:
            answer = self.world.beat(self.name, self.epoch, self.owned, instance_id=self.instance)
        if answer.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch, self.owned = 0, {}
            return
        assert answer.error_code == ErrorCode.NONE, answer
        assert answer.member_epoch >= before
        self.epoch = answer.member_epoch
        assigned = self.world.owned(answer)
        if assigned is not None:
            self.owned = assigned

    def leave(self, *, for_a_while: bool) -> None:
        epoch = -2 if for_a_while and self.instance else -1
        answer = self.world.beat(self.name, epoch, instance_id=self.instance)
        assert answer.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID), answer


def consumers_owning(members: list[ConsumerMember]) -> list[tuple[str, int]]:
    return [
        (topic, index)
        for member in members
        for topic, indexes in member.owned.items()
        for index in indexes
    ]


@pytest.mark.parametrize("in_slices", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_consumer_groups_stay_consistent(
    seed: int, in_slices: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_slices:
        monkeypatch.setattr(targets, "SHORT_SLICE_MS", -1)
        monkeypatch.setattr(consumer_targets, "AT_ONCE_MAX", 0)
    chance = random.Random(seed)
    world = ConsumersWorld(group_consumer_assignment_interval_ms=chance.choice([0, 1_000]))
    world.create_topic("a", PARTITIONS)
    world.create_topic("b", 5)
    members: list[ConsumerMember] = []
    epoch = 0
    for number in range(ROUNDS):
        change_consumers(world, members, chance, number)
        epoch = pass_round(world, members, chance, epoch)
    members = members or [ConsumerMember(world, "last", None)]
    for _ in range(QUIET_ROUNDS):
        epoch = pass_round(world, members, chance, epoch)
    assert world.state() == "Stable"
    assert sorted(consumers_owning(members)) == [("a", n) for n in range(PARTITIONS)] + [
        ("b", n) for n in range(5)
    ]


def change_consumers(
    world: ConsumersWorld, members: list[ConsumerMember], chance: random.Random, number: int
) -> None:
    match chance.randrange(6):
        case 0 | 1 if len(members) < MEMBERS_MAX:
            instance = f"i{number}" if chance.random() < 0.3 else None
            members.append(ConsumerMember(world, f"m{number}", instance))
        case 2 if members:
            members.pop(chance.randrange(len(members))).leave(for_a_while=False)
        case 3 if members:
            # The member dies. Its session ends later.
            members.pop(chance.randrange(len(members)))
        case 4 if members:
            # A static member restarts with another member id.
            left = members.pop(chance.randrange(len(members)))
            left.leave(for_a_while=True)
            members.append(ConsumerMember(world, f"m{number}", left.instance))
        case 5 if number % 40 == 0:
            world.restart()


def pass_round(
    world: ConsumersWorld, members: list[ConsumerMember], chance: random.Random, epoch: int
) -> int:
    """Let all members beat in a random order. Return the group epoch after it."""
    for member in chance.sample(members, len(members)):
        member.beat()
        world.run_for(chance.randrange(20))
        owned = consumers_owning(members)
        assert len(owned) == len(set(owned)), owned
    world.run_for(HEARTBEAT_MS)
    described = world.describe_consumers()
    if described.error_code != ErrorCode.NONE:
        return epoch
    assert described.group_epoch >= epoch
    assert described.assignment_epoch <= described.group_epoch
    return described.group_epoch


class ClassicMember:
    """A client of the classic protocol with an eager assignor."""

    def __init__(self, world: MembersWorld) -> None:
        self.world = world
        self.id = ""
        self.generation = -1
        self.owned: set[int] = set()
        # Takes the pending response; None while the member is stable or has to join.
        self._pending: tuple[list, Callable[[object], None]] | None = None

    @property
    def is_stable(self) -> bool:
        return self._pending is None and self.generation >= 0

    def poll(self) -> None:
        if self._pending is not None:
            answers, take = self._pending
            if answers:
                self._pending = None
                take(answers[0])
        elif self.generation < 0:
            self.owned = set()
            answers = self.world.join(self.id, protocols={"range": subscription("a")})
            self._pending = (answers, self._joined)
        else:
            error = self.world.heartbeat(self.id, self.generation)
            if error != ErrorCode.NONE:
                self._rejoin(error)

    def _joined(self, answer) -> None:
        if answer.error_code != ErrorCode.NONE:
            self.id = answer.member_id
            self._rejoin(answer.error_code)
            return
        assert answer.generation_id > self.generation
        self.id, self._joining = answer.member_id, answer.generation_id
        names = sorted(each.member_id for each in answer.members)
        plan = {
            name: bytes(range(PARTITIONS))[place :: len(names)] for place, name in enumerate(names)
        }
        synced = self.world.sync(self.id, answer.generation_id, assign=plan)
        self._pending = (synced, self._synced)

    def _synced(self, answer) -> None:
        if answer.error_code != ErrorCode.NONE:
            self._rejoin(answer.error_code)
            return
        self.generation = self._joining
        self.owned = set(answer.assignment)

    def _rejoin(self, error: int) -> None:
        assert error in (
            ErrorCode.MEMBER_ID_REQUIRED,
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ), ErrorCode(error).name
        if error == ErrorCode.UNKNOWN_MEMBER_ID:
            self.id = ""
        self.generation, self.owned, self._pending = -1, set(), None


@pytest.mark.parametrize("seed", range(4))
def test_classic_groups_stay_consistent(seed: int) -> None:
    chance = random.Random(seed)
    world = MembersWorld(group_initial_rebalance_delay_ms=0)
    members: list[ClassicMember] = []
    generation = 0
    for _ in range(ROUNDS):
        match chance.randrange(4):
            case 0 | 1 if len(members) < MEMBERS_MAX:
                members.append(ClassicMember(world))
            case 2 if members:
                left = members.pop(chance.randrange(len(members)))
                if left.is_stable:
                    world.leave(left.id)
            case 3 if members:
                members.pop(chance.randrange(len(members)))
        generation = poll_all(world, members, chance, generation)
    members = members or [ClassicMember(world)]
    for _ in range(QUIET_ROUNDS):
        generation = poll_all(world, members, chance, generation)
    assert all(member.is_stable for member in members)
    assert {member.generation for member in members} == {generation}
    assert set().union(*(member.owned for member in members)) == set(range(PARTITIONS))


def poll_all(
    world: MembersWorld, members: list[ClassicMember], chance: random.Random, generation: int
) -> int:
    """Let all members poll in a random order. Return the newest generation."""
    for _ in range(3):
        for member in chance.sample(members, len(members)):
            member.poll()
            world.run_for(chance.randrange(20))
    world.run_for(HEARTBEAT_MS)
    newest = max((member.generation for member in members), default=-1)
    current = [member for member in members if member.generation == newest]
    owned = [index for member in current for index in member.owned]
    assert len(owned) == len(set(owned)), (newest, owned)
    assert newest >= generation or not any(member.is_stable for member in members)
    return max(newest, generation)
