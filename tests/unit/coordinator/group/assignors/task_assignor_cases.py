"""Random streams groups for the task assignors, from a seed.

A group goes through changes: members join, leave and come back with tasks that they had before,
processes get more members, subtopologies grow, and the number of standby replicas changes. Members
own what they were assigned, or a part of it, and report offsets.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.coordinator.group.streams.task_assignors import (
    MemberTasks,
    StreamsInput,
    StreamsMemberInput,
    SubtopologyInput,
    TaskAssignorError,
    TaskOffsets,
    Tasks,
    assign_sticky,
)
from barnabas.waiting.steps import run_to_end

FAILED = {"failed": "TaskAssignorException"}
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"


class TaskAssignorCase(NamedTuple):
    """One call of the assignor."""

    given: StreamsInput

    def ours(self) -> dict[str, str]:
        """Return the assignment of Barnabas's assignor, in the format of StreamsGroups.java."""
        try:
            found = run_to_end(assign_sticky(self.given))
        except TaskAssignorError:
            return FAILED
        return {
            hex_of(name): f"{_tasks_word(own.active)} {_tasks_word(own.standby)}"
            for name, own in found.items()
        }

    def lines(self) -> list[str]:
        """Return the case in the format of StreamsGroups.java."""
        lines = [f"assign {self.given.standby_replicas}"]
        for name in sorted(self.given.subtopologies, key=lambda each: each.encode("utf-16-be")):
            each = self.given.subtopologies[name]
            lines.append(f"tasks {hex_of(name)} {each.tasks} {str(each.is_stateful).lower()}")
        for name, member in self.given.members.items():
            owned = member.owned
            lines.append(
                f"member {hex_of(name)} {hex_of(member.process_id)} {_tasks_word(owned.active)} "
                f"{_tasks_word(owned.standby)} {_offsets_word(member.offsets)}"
            )
        return [*lines, "end"]


def hex_of(text: str) -> str:
    return text.encode().hex()


def _tasks_word(tasks: Tasks) -> str:
    parts = {hex_of(each): ",".join(map(str, sorted(own))) for each, own in tasks.items() if own}
    return ";".join(f"{each}:{own}" for each, own in sorted(parts.items())) or "-"


def _offsets_word(offsets: TaskOffsets) -> str:
    return (
        ";".join(
            f"{hex_of(each)}:" + ",".join(f"{number}={offset}" for number, offset in own.items())
            for each, own in offsets.items()
            if own
        )
        or "-"
    )


@dataclass
class StreamsGroupHistory:
    """One group. The seed decides about its sizes: few or many members, processes and tasks."""

    seed: int
    _members: dict[str, StreamsMemberInput] = field(default_factory=dict)
    _gone: dict[str, StreamsMemberInput] = field(default_factory=dict)
    _subtopologies: dict[str, SubtopologyInput] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(f"sticky-{self.seed}")
        self._members_max = self._random.choice([1, 2, 5, 12, 40])
        self._processes_max = self._random.choice([1, 2, 5, 12, 40])
        self._tasks_max = self._random.choice([1, 3, 8, 25])
        self._replicas = self._random.choice([0, 0, 1, 1, 2, 3])
        for number in range(self._random.randint(1, 5)):
            name = str(number) if self._random.random() < 0.8 else f"sub\N{GRINNING FACE}{number}"
            self._subtopologies[name] = self._subtopology()
        for _ in range(self._random.randint(1, self._members_max)):
            self._join()

    def cases(self, count: int) -> list[TaskAssignorCase]:
        """Return `count` assignments, with changes between them."""
        found = []
        for _ in range(count):
            given = StreamsInput(dict(self._members), dict(self._subtopologies), self._replicas)
            found.append(TaskAssignorCase(given))
            self._take(run_to_end(assign_sticky(given)))
            for _ in range(self._random.randint(0, 3)):
                self._change()
        return found

    def _take(self, targets: Mapping[str, MemberTasks]) -> None:
        """Let the members own their targets: as a whole, in part, or not at all."""
        share = self._random.choice([1.0, 1.0, 0.7, 0.0])
        for name, member in self._members.items():
            if share:
                owned = MemberTasks(
                    self._part(targets[name].active, share),
                    self._part(targets[name].standby, share),
                )
                self._members[name] = self._member(member.process_id, owned)

    def _part(self, tasks: Tasks, share: float) -> Tasks:
        part = {
            each: frozenset(number for number in sorted(own) if self._random.random() < share)
            for each, own in sorted(tasks.items())
        }
        return {each: own for each, own in part.items() if own}

    def _member(self, process_id: str, owned: MemberTasks) -> StreamsMemberInput:
        offsets: dict[str, dict[int, int]] = {}
        if self._random.random() < 0.5:
            for name, each in self._subtopologies.items():
                for number in range(each.tasks):
                    if self._random.random() < 0.3:
                        offset = self._random.choice([0, 5, 5, 70, 900])
                        offsets.setdefault(name, {})[number] = offset
        return StreamsMemberInput(process_id, owned, offsets)

    def _change(self) -> None:
        change = self._random.randrange(7)
        if change <= 1 and len(self._members) < self._members_max:
            self._join()
        elif change == 2 and len(self._members) > 1:
            name = self._random.choice(sorted(self._members))
            self._gone[name] = self._members.pop(name)
        elif change == 3 and self._gone and len(self._members) < self._members_max:
            name = self._random.choice(sorted(self._gone))
            # Its tasks may have another owner meanwhile.
            self._members[name] = self._gone.pop(name)
        elif change == 4:
            name = self._random.choice(sorted(self._subtopologies))
            self._subtopologies[name] = self._subtopology()
        elif change == 5:
            self._replicas = self._random.choice([0, 1, 2])
        else:
            for name, member in self._members.items():
                self._members[name] = self._member(member.process_id, member.owned)

    def _subtopology(self) -> SubtopologyInput:
        return SubtopologyInput(
            self._random.randint(1, self._tasks_max), self._random.random() < 0.6
        )

    def _join(self) -> None:
        kind = self._random.random()
        name = "".join(self._random.choices(_LETTERS, k=22))
        if kind < 0.2:
            name = f"m{self._random.randrange(1000)}"
        elif kind < 0.3:
            name = f"\N{GRINNING FACE}\N{FULLWIDTH LATIN SMALL LETTER A}{self._random.random()}"
        number = self._random.randrange(self._processes_max)
        process_id = random.Random(f"{self.seed}-{number}").randbytes(8).hex()
        if name not in self._members:
            self._members[name] = self._member(process_id, MemberTasks())
