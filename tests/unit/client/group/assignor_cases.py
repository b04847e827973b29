"""Random groups for assignors, from a seed: changing members, growing topics, different racks."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.client.group.assignor import (
    AssignablePartition,
    Assignor,
    MemberSubscription,
)
from barnabas.client.group.built_in_assignors import sticky_user_data
from barnabas.client.group.group_leader import resolve_assignors
from barnabas.client.group.sticky_assignment import Claim
from barnabas.client.topic_partition import TopicPartition

RACKS = ("a", "b", "c")


class AssignorCase(NamedTuple):
    """One call of an assignor."""

    assignor: str
    topics: dict[str, list[AssignablePartition]]
    members: dict[str, MemberSubscription]

    def ours(self) -> dict[str, list[TopicPartition]]:
        """Return the assignment of Barnabas's assignor, sorted."""
        decided = new_assignor(self.assignor).assign(self.topics, self.members)
        return {name: sorted(decided[name].partitions) for name in sorted(decided)}

    def lines(self) -> list[str]:
        """Return the case in the format of Assignors.java."""
        lines = [f"case {self.assignor}"]
        for topic, partitions in self.topics.items():
            racks = [",".join(r for r in each.racks if r) or "-" for each in partitions]
            lines.append(f"topic {topic} {';'.join(racks)}")
        for name, each in self.members.items():
            owned = ",".join(f"{tp.topic}:{tp.partition}" for tp in each.owned_partitions)
            words = [
                name,
                each.instance_id,
                each.rack_id,
                str(each.generation_id),
                ",".join(each.topics),
                owned,
                each.user_data.hex() if each.user_data else None,
            ]
            lines.append("member " + " ".join(word or "-" for word in words))
        return [*lines, "end"]


def new_assignor(name: str) -> Assignor:
    return resolve_assignors([name])[name]


@dataclass
class Member:
    """A member between rebalances."""

    topics: list[str]
    rack: str | None
    instance: str | None
    owned: list[TopicPartition] = field(default_factory=list)
    generation: int = -1


class GroupHistory:
    """A group with a sequence of assignments, each of which is a case."""

    def __init__(self, assignor: str, seed: int) -> None:
        self._assignor = assignor
        self._random = random.Random(f"{assignor} {seed}")
        self._same_topics = self._random.random() < 0.6
        self._with_racks = self._random.random() < 0.4
        # Every tenth group is a large one.
        scale = 5 if seed % 10 == 9 else 1
        self._topics = {
            f"t{number}": [self._partition() for _ in range(self._random.randint(1, 9))]
            for number in range(self._random.randint(1, 5 * scale))
        }
        self._members: dict[str, Member] = {}
        self._generation = 0
        for _ in range(self._random.randint(1, 6 * scale)):
            self._join()

    def cases(self, count: int) -> list[AssignorCase]:
        """Yield the cases of `count` rebalances."""
        return [self._next() for _ in range(count)]

    def _next(self) -> AssignorCase:
        case = AssignorCase(
            self._assignor,
            {topic: list(each) for topic, each in self._topics.items()},
            {name: self._subscription(each) for name, each in self._members.items()},
        )
        self._generation += 1
        for name, partitions in case.ours().items():
            if self._random.random() < 0.05:
                # The member missed rebalances and still claims its old partitions.
                continue
            self._members[name].owned = partitions
            self._members[name].generation = self._generation
        self._change()
        return case

    def _subscription(self, member: Member) -> MemberSubscription:
        topics = list(member.topics)
        if self._assignor == "sticky":
            data = None
            if member.generation >= 0:
                data = sticky_user_data(Claim(member.owned, member.generation))
            return MemberSubscription(
                topics, (), data, member.generation, member.rack, member.instance
            )
        return MemberSubscription(
            topics, member.owned, None, member.generation, member.rack, member.instance
        )

    def _change(self) -> None:
        kind = self._random.randint(0, 5)
        if kind <= 1:
            self._join()
        elif kind <= 3 and len(self._members) > 1:
            self._members.pop(self._random.choice(list(self._members)))
        elif kind == 4:
            topic = self._random.choice(list(self._topics))
            self._topics[topic].append(self._partition(len(self._topics[topic])))
            self._number()
        elif not self._same_topics:
            member = self._random.choice(list(self._members.values()))
            topics = list(self._topics)
            member.topics = self._random.sample(topics, self._random.randint(1, len(topics)))
        else:
            # Two members claim the same partitions.
            one, other = (self._random.choice(list(self._members.values())) for _ in range(2))
            if one is not other and one.owned and self._random.random() < 0.3:
                other.owned = sorted({*other.owned, one.owned[0]})

    def _join(self) -> None:
        topics = list(self._topics)
        if not self._same_topics:
            topics = self._random.sample(topics, self._random.randint(1, len(topics)))
        rack = self._random.choice((*RACKS, None)) if self._with_racks else None
        instance = f"i{len(self._members)}" if self._random.random() < 0.2 else None
        name = f"consumer-{self._random.randrange(10**9)}"
        if any(each.instance == instance for each in self._members.values()):
            instance = None
        self._members[name] = Member(topics, rack, instance)
        self._number()

    def _number(self) -> None:
        for each in self._topics.values():
            each[:] = [AssignablePartition(n, p.racks) for n, p in enumerate(each)]

    def _partition(self, number: int = 0) -> AssignablePartition:
        if not self._with_racks:
            return AssignablePartition(number)
        racks = self._random.sample(RACKS, self._random.randint(1, 2))
        return AssignablePartition(number, tuple(racks))
