"""One model of quiet heartbeats: random heartbeats of three members, for each kind of group."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import Any, ClassVar

ROUNDS = 600


class QuietStorm(ABC):
    """Random heartbeats of three members, and changes of what their responses depend on.

    A subclass adds a kind of group: how its members send a heartbeat, and what changes.
    """

    members: ClassVar[tuple[str, ...]] = ("a", "b", "c")
    # A topic that is created and deleted again, and its partitions.
    changing_topic: ClassVar[tuple[str, int]] = ("t2", 3)
    # How often something other than a heartbeat happens.
    change_chance: ClassVar[float] = 0.06

    def __init__(self, seed: int, world: Any) -> None:
        self.chance = random.Random(seed)
        self.world = world
        self.has_changing_topic = False
        self.epochs = dict.fromkeys(self.members, 0)
        # Responses to heartbeats, and what else members, administrators and brokers see.
        self.seen: list[object] = []

    def play(self) -> list[object]:
        """Return what is seen in all rounds."""
        for _ in range(ROUNDS):
            self.world.run_for(self.chance.choice((1, 10)))
            if self.chance.random() < self.change_chance:
                self.change()
            self.beat(self.chance.choice(self.members))
        return self.seen

    @abstractmethod
    def change(self) -> None:
        """Change something that responses depend on, or describe the group."""

    @abstractmethod
    def beat(self, member: str) -> None:
        """Send a heartbeat of a member with its last epoch."""

    def change_topics(self) -> None:
        """Create or delete a topic of the group."""
        name, partitions = self.changing_topic
        if self.has_changing_topic:
            self.world.delete_topic(name)
        else:
            self.world.create_topic(name, partitions)
        self.has_changing_topic = not self.has_changing_topic

    def let_retries_run(self) -> None:
        """Let 40 s pass, while the members stay: what failed is tried again."""
        for _ in range(4):
            self.world.run_for(10_000)
            for member in self.members:
                self.beat(member)

    def end_sessions(self) -> None:
        """Let so much time pass that all sessions expire."""
        self.world.run_for(100_000)

    def note(self, member: str, epoch: int, response: Any) -> None:
        """Store a response; the next heartbeat has its epoch."""
        self.seen.append(response)
        self.epochs[member] = 0 if response.error_code or epoch < 0 else response.member_epoch
