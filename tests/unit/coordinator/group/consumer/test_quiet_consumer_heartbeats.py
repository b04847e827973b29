"""Heartbeats that change nothing get the response that they would get from the general code."""

from __future__ import annotations

import pytest

from barnabas.coordinator.group.consumer import consumer_membership
from unit.coordinator.consumers_world import ConsumersWorld, Partitions
from unit.coordinator.quiet_comparison import seen_both_ways
from unit.coordinator.quiet_storm import QuietStorm

TOPICS = ("t1", "t2")


class ConsumerStorm(QuietStorm):
    """A consumer group. Member "s" is static."""

    members = ("a", "b", "s")

    def __init__(self, seed: int) -> None:
        interval_ms = (0, 50)[seed % 2]
        super().__init__(seed, ConsumersWorld(group_consumer_assignment_interval_ms=interval_ms))
        self.world.create_topic("t1", 4)
        self.owned: dict[str, Partitions] = {}

    def change(self) -> None:
        match self.chance.randrange(7):
            case 0:
                self.change_topics()
            case 1:
                interval_ms = self.chance.choice(("6000", "7000"))
                self.world.overrides["g"] = {"consumer.heartbeat.interval.ms": interval_ms}
            case 2:
                self.world.restart()
            case 3:
                self._send(self.chance.choice(self.members), -1)
            case 4:
                self.end_sessions()
            case 5:
                self.seen.append(self.world.describe_consumers())
            case 6:
                # Regular expressions are resolved again.
                self.let_retries_run()

    def beat(self, member: str) -> None:
        epoch, fields = self.epochs[member], {}
        if not epoch:
            fields = {"rebalance_timeout_ms": 20_000, **self._subscription()}
        elif self.chance.random() < 0.03:
            fields = self._subscription()
        if self.chance.random() < 0.02:
            fields["rack_id"] = self.chance.choice("rs")
        if self.chance.random() < 0.02:
            fields["host"] = "/1.2.3.4"
        if self.chance.random() < 0.02:
            fields["server_assignor"] = self.chance.choice(("uniform", "range"))
        self._send(member, epoch, **fields)

    def _subscription(self) -> dict[str, object]:
        if self.chance.random() < 0.1:
            return {"subscribed_topic_regex": self.chance.choice(("t.*", "t2", ""))}
        topics = self.chance.choice((TOPICS, TOPICS[:1]))
        return {"subscribed_topic_names": list(topics)}

    def _send(self, member: str, epoch: int, **fields: object) -> None:
        if epoch > 0 and self.chance.random() < 0.03:
            epoch -= 1
        if member == "s" and (epoch < 1 or self.chance.random() < 0.5):
            fields["instance_id"] = "i"
        owned: Partitions | None = None
        if not epoch:
            owned = {}
        elif epoch > 0 and self.chance.random() < 0.3:
            owned = self.owned.get(member)
        response = self.world.beat(member, epoch, owned, **fields)
        self.note(member, epoch, response)
        assigned = self.world.owned(response)
        if assigned is not None:
            self.owned[member] = assigned


@pytest.mark.parametrize("seed", range(6))
def test_quiet_heartbeats_have_the_responses_of_the_general_code(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name = consumer_membership, "quiet_consumer_heartbeat"
    seen = seen_both_ways(monkeypatch, module, name, lambda: ConsumerStorm(seed).play())
    assert {getattr(each, "error_code", 0) for each in seen} > {0}
