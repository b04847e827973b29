"""Heartbeats that change nothing get the response that they would get from the general code."""

from __future__ import annotations

import pytest

from barnabas.coordinator.group.share import share_membership
from barnabas.protocol.errors import ErrorCode
from unit.coordinator.quiet_comparison import seen_both_ways
from unit.coordinator.quiet_storm import QuietStorm
from unit.coordinator.shares_world import SharesWorld

TOPICS = ("t1", "t2")
# The initialization of these partitions fails.
FAILING = {1: ErrorCode.COORDINATOR_NOT_AVAILABLE}


class ShareStorm(QuietStorm):
    """A share group, with the state of its partitions."""

    def __init__(self, seed: int) -> None:
        super().__init__(
            seed, SharesWorld(group_share_assignment_interval_ms=(50, 0)[seed // 2 % 2])
        )
        self.world.create_topic("t1", 2)
        self.world.share_store.failing = FAILING if seed % 2 else {}

    def change(self) -> None:
        store = self.world.share_store
        match self.chance.randrange(9):
            case 0:
                self.change_topics()
            case 1:
                interval_ms = self.chance.choice(("6000", "7000"))
                self.world.overrides["g"] = {"share.heartbeat.interval.ms": interval_ms}
            case 2:
                self.world.restart()
            case 3:
                self._send(self.chance.choice(self.members), -1)
            case 4:
                self.end_sessions()
            case 5:
                self.seen.append(self.world.describe_shares())
            case 6:
                store.is_held = not store.is_held
                store.release()
            case 7:
                store.failing = self.chance.choice(({}, {}, FAILING))
            case 8:
                # Initializations without a result are repeated.
                self.let_retries_run()

    def beat(self, member: str) -> None:
        epoch = self.epochs[member]
        topics: tuple[str, ...] = ()
        if not epoch or self.chance.random() < 0.03:
            topics = self.chance.choice((TOPICS, TOPICS[:1]))
        rack = self.chance.choice("rs") if self.chance.random() < 0.02 else None
        host = "/1.2.3.4" if self.chance.random() < 0.02 else None
        self._send(member, epoch, *topics, rack=rack, host=host)
        self.seen.append(self.world.start_offsets())

    def _send(self, member: str, epoch: int, *topics: str, **fields: str | None) -> None:
        if epoch > 0 and self.chance.random() < 0.03:
            epoch -= 1
            topics = topics or (TOPICS if not epoch else ())
        response = self.world.share_beat(member, epoch, *topics, **fields)
        self.note(member, epoch, response)


@pytest.mark.parametrize("seed", range(6))
def test_quiet_heartbeats_have_the_responses_of_the_general_code(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name = share_membership, "quiet_share_heartbeat"
    seen = seen_both_ways(monkeypatch, module, name, lambda: ShareStorm(seed).play())
    assert {getattr(each, "error_code", 0) for each in seen} > {0}
