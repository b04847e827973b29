"""Random groups for the server-side assignors, from a seed.

A group goes through changes: members join, leave and come back with a target that is out of date,
change their subscriptions, and topics appear, grow and disappear. Each assignment is the target of
the next one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.coordinator.group.consumer.consumer_assignors import assign_ranges, assign_uniformly
from barnabas.coordinator.group.share.simple_assignor import assign_simply
from barnabas.coordinator.group.targets import (
    Assigning,
    AssignorInput,
    MemberInput,
)
from barnabas.coordinator.group.topics import NOTHING, Target
from barnabas.waiting.steps import run_to_end

ASSIGNORS: dict[str, Callable[[AssignorInput], Assigning]] = {
    "range": assign_ranges,
    "uniform": assign_uniformly,
    "simple": assign_simply,
}
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"


class ServerAssignorCase(NamedTuple):
    """One call of an assignor."""

    assignor: str
    given: AssignorInput

    def ours(self) -> dict[str, str]:
        """Return the assignment of Barnabas's assignor, in the format of ServerAssignors.java."""
        found = run_to_end(ASSIGNORS[self.assignor](self.given))
        return {_hex(name): _target_word(target) for name, target in found.items()}

    def lines(self) -> list[str]:
        """Return the case in the format of ServerAssignors.java."""
        kind = "HOMOGENEOUS" if self.given.is_homogeneous else "HETEROGENEOUS"
        lines = [f"case {self.assignor} {kind}"]
        for topic, count in self.given.partition_counts.items():
            assignable = "*"
            if self.given.assignable is not None:
                assignable = _numbers(self.given.assignable.get(topic, frozenset()))
            lines.append(f"topic {topic.hex()} {count} {assignable}")
        for name, each in self.given.members.items():
            instance = "-" if each.instance_id is None else _hex(each.instance_id)
            topics = ",".join(topic.hex() for topic in sorted(each.subscribed_topic_ids)) or "-"
            lines.append(f"member {_hex(name)} {instance} {topics} {_target_word(each.target)}")
        return [*lines, "end"]


def _hex(text: str) -> str:
    return text.encode().hex()


def _numbers(partitions: frozenset[int]) -> str:
    return ",".join(map(str, sorted(partitions))) or "-"


def _target_word(target: Target) -> str:
    return (
        ";".join(f"{topic.hex()}:{_numbers(own)}" for topic, own in sorted(target.items())) or "-"
    )


@dataclass
class ServerGroupHistory:
    """One group. The seed decides about its sizes: few or many members and partitions."""

    assignor: str
    seed: int
    _topics: dict[bytes, int] = field(default_factory=dict)
    _members: dict[str, MemberInput] = field(default_factory=dict)
    _gone: dict[str, MemberInput] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(f"{self.assignor}-{self.seed}")
        self._members_max = self._random.choice([2, 5, 12, 40])
        self._partitions_max = self._random.choice([1, 4, 12, 40, 120])
        self._is_homogeneous = self._random.random() < 0.5
        for _ in range(self._random.randint(1, 6)):
            self._add_topic()
        for _ in range(self._random.randint(1, self._members_max)):
            self._join()

    def cases(self, count: int) -> list[ServerAssignorCase]:
        """Return `count` assignments, with changes between them."""
        found = []
        for _ in range(count):
            case = ServerAssignorCase(self.assignor, self._given())
            found.append(case)
            targets = run_to_end(ASSIGNORS[self.assignor](case.given))
            for name, member in self._members.items():
                self._members[name] = MemberInput(
                    member.subscribed_topic_ids, targets[name], member.instance_id
                )
            for _ in range(self._random.randint(0, 3)):
                self._change()
        return found

    def _given(self) -> AssignorInput:
        # Topics that no member subscribes to any more have a count as well, as in Kafka's image.
        assignable = None
        if self.assignor == "simple" and self._random.random() < 0.3:
            assignable = {
                topic: frozenset(i for i in range(count) if self._random.random() < 0.7)
                for topic, count in self._topics.items()
            }
        return AssignorInput(
            dict(self._members), dict(self._topics), self._is_homogeneous, assignable
        )

    def _change(self) -> None:
        change = self._random.randrange(8)
        if change <= 1 and len(self._members) < self._members_max:
            self._join()
        elif change == 2 and len(self._members) > 1:
            name = self._random.choice(sorted(self._members))
            self._gone[name] = self._members.pop(name)
        elif change == 3 and self._gone and len(self._members) < self._members_max:
            self._come_back()
        elif change == 4:
            self._add_topic()
            self._subscribe()
        elif change == 5:
            topic = self._random.choice(sorted(self._topics))
            self._topics[topic] += self._random.randint(1, 3)
        elif change == 6:
            self._subscribe()
        else:
            self._is_homogeneous = self._random.random() < 0.5
            self._subscribe()

    def _come_back(self) -> None:
        """Let a member join with the partitions of its last target that are still free."""
        name = self._random.choice(sorted(self._gone))
        member = self._gone.pop(name)
        taken = {
            (topic, each)
            for other in self._members.values()
            for topic, own in other.target.items()
            for each in own
        }
        target = {
            topic: frozenset(each for each in own if (topic, each) not in taken)
            for topic, own in member.target.items()
        }
        self._members[name] = MemberInput(
            self._subscription(),
            {topic: own for topic, own in target.items() if own},
            member.instance_id,
        )

    def _add_topic(self) -> None:
        self._topics[self._random.randbytes(16)] = self._random.randint(1, self._partitions_max)

    def _subscription(self) -> frozenset[bytes]:
        if self._is_homogeneous and self._members:
            return next(iter(self._members.values())).subscribed_topic_ids
        count = self._random.randint(0 if self._random.random() < 0.1 else 1, len(self._topics))
        return frozenset(self._random.sample(sorted(self._topics), count))

    def _subscribe(self) -> None:
        """Change subscriptions: of all members in the same way, or of some."""
        subscription = self._subscription()
        if self._is_homogeneous:
            count = self._random.randint(1, len(self._topics))
            subscription = frozenset(self._random.sample(sorted(self._topics), count))
        for name, member in self._members.items():
            if self._is_homogeneous or self._random.random() < 0.5:
                if not self._is_homogeneous:
                    subscription = self._subscription()
                self._members[name] = MemberInput(subscription, member.target, member.instance_id)

    def _join(self) -> None:
        kind = self._random.random()
        name = "".join(self._random.choices(_LETTERS, k=22))
        if kind < 0.2:
            name = f"m{self._random.randrange(1000)}"
        elif kind < 0.3:
            name = f"\N{GRINNING FACE}\N{FULLWIDTH LATIN SMALL LETTER A}{self._random.random()}"
        instance = f"i{self._random.random()}" if self._random.random() < 0.3 else None
        if name not in self._members:
            self._members[name] = MemberInput(self._subscription(), NOTHING, instance)
