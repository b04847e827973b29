"""Heartbeats that change nothing get the response that they would get from the general code."""

from __future__ import annotations

import random

import pytest

from barnabas.coordinator.group.share import share_membership
from barnabas.protocol.errors import ErrorCode
from unit.coordinator.quiet_comparison import seen_both_ways
from unit.coordinator.shares_world import SharesWorld

ROUNDS = 600
MEMBERS = ("a", "b", "c")
TOPICS = ("t1", "t2")
# The initialization of these partitions fails.
FAILING = {1: ErrorCode.COORDINATOR_NOT_AVAILABLE}


class Storm:
    """Random heartbeats of three members, and changes of what their responses depend on."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = SharesWorld(group_share_assignment_interval_ms=self.chance.choice((0, 50)))
        self.world.create_topic("t1", 2)
        self.world.share_store.failing = FAILING if seed % 2 else {}
        self.has_second = False
        self.epochs = dict.fromkeys(MEMBERS, 0)
        # Responses to heartbeats, descriptions of the group, and state of share partitions.
        self.seen: list[object] = []

    def play(self) -> list[object]:
        """Return what the members, an administrator and the share coordinators see."""
        for _ in range(ROUNDS):
            self.world.run_for(self.chance.choice((1, 10)))
            if self.chance.random() < 0.06:
                self._change()
            self._beat(self.chance.choice(MEMBERS))
            self.seen.append(self.world.start_offsets())
        return self.seen

    def _change(self) -> None:
        store = self.world.share_store
        match self.chance.randrange(9):
            case 0:
                self._change_topics()
            case 1:
                interval_ms = self.chance.choice(("6000", "7000"))
                self.world.overrides["g"] = {"share.heartbeat.interval.ms": interval_ms}
            case 2:
                self.world.restart()
            case 3:
                self._send(self.chance.choice(MEMBERS), -1)
            case 4:
                # All sessions expire.
                self.world.run_for(100_000)
            case 5:
                self.seen.append(self.world.describe_shares())
            case 6:
                store.is_held = not store.is_held
                store.release()
            case 7:
                store.failing = self.chance.choice(({}, {}, FAILING))
            case 8:
                # Members stay, and initializations without a result are repeated.
                for _ in range(4):
                    self.world.run_for(10_000)
                    for member in MEMBERS:
                        self._beat(member)

    def _change_topics(self) -> None:
        if self.has_second:
            self.world.delete_topic("t2")
        else:
            self.world.create_topic("t2", 3)
        self.has_second = not self.has_second

    def _beat(self, member: str) -> None:
        epoch = self.epochs[member]
        topics: tuple[str, ...] = ()
        if not epoch or self.chance.random() < 0.03:
            topics = self.chance.choice((TOPICS, TOPICS[:1]))
        rack = self.chance.choice("rs") if self.chance.random() < 0.02 else None
        host = "/1.2.3.4" if self.chance.random() < 0.02 else None
        self._send(member, epoch, *topics, rack=rack, host=host)

    def _send(self, member: str, epoch: int, *topics: str, **fields: str | None) -> None:
        if epoch > 0 and self.chance.random() < 0.03:
            epoch -= 1
            topics = topics or (TOPICS if not epoch else ())
        response = self.world.share_beat(member, epoch, *topics, **fields)
        self.seen.append(response)
        self.epochs[member] = 0 if response.error_code or epoch < 0 else response.member_epoch


@pytest.mark.parametrize("seed", range(6))
def test_quiet_heartbeats_have_the_responses_of_the_general_code(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name = share_membership, "quiet_share_heartbeat"
    seen = seen_both_ways(monkeypatch, module, name, lambda: Storm(seed).play())
    assert {getattr(each, "error_code", 0) for each in seen} > {0}
