"""Heartbeats that change nothing get the response that they would get from the general code."""

from __future__ import annotations

import pytest

from barnabas.coordinator.group.classic.classic_membership import ClientIdentity
from barnabas.coordinator.group.streams import streams_membership
from unit.coordinator.consumers_world import CLIENT
from unit.coordinator.quiet_comparison import seen_both_ways
from unit.coordinator.quiet_storm import QuietStorm
from unit.coordinator.streams_world import StreamsWorld, by_subtopology, topology

TOPOLOGY = topology("in", changelog="log", epoch=1)
OLD_TOPOLOGY = topology("in", epoch=0)
TAGS = "streams.rack.aware.assignment.tags"


class StreamsStorm(QuietStorm):
    """A streams group with two topologies, tags, endpoints and task offsets."""

    changing_topic = ("log", 4)
    change_chance = 0.08

    def __init__(self, seed: int) -> None:
        world = StreamsWorld(
            group_streams_assignment_interval_ms=(0, 50)[seed % 2],
            group_streams_initial_rebalance_delay_ms=(0, 30)[seed // 2 % 2],
        )
        super().__init__(seed, world)
        world.create_topic("in", 4)
        self.change_topics()
        # The configs of the group are the same object until they change, as in a metadata image.
        world.overrides["g"] = {}
        self.reports: dict[str, object] = {}
        self.endpoint_epochs = dict.fromkeys(self.members, 0)

    def change(self) -> None:
        match self.chance.randrange(7):
            case 0:
                self.change_topics()
            case 1:
                self.world.overrides["g"] = {
                    "streams.num.standby.replicas": self.chance.choice("01"),
                    "streams.heartbeat.interval.ms": self.chance.choice(("6000", "7000")),
                }
            case 2:
                self.world.overrides["g"] = {TAGS: self.chance.choice(("", "", "zone"))}
            case 3:
                self.world.restart()
            case 4:
                self._send(self.chance.choice(self.members), -1)
            case 5:
                self.world.run_for(20_000)
            case 6:
                self.seen.append(self.world.describe_streams())

    def beat(self, member: str) -> None:
        epoch = self.epochs[member]
        fields: dict[str, object] = {}
        if not epoch:
            fields["process"] = member
            if member == "a":
                fields["endpoint"] = "host"
            self.reports[member] = {}
        elif member in self.reports:
            fields["owned"] = self.reports.pop(member)
        if member == "c":
            fields["instance"] = "i"
        self._vary(fields)
        self._send(member, epoch, **fields)

    def _vary(self, fields: dict[str, object]) -> None:
        """Now and then, add a field that changes the member."""
        match self.chance.randrange(80):
            case 0:
                fields["tags"] = {"zone": self.chance.choice("xy")}
            case 1:
                fields["offsets"] = {0: self.chance.randrange(100)}
            case 2:
                fields["rebalance_ms"] = self.chance.choice((1_000, 2_000))
            case 3:
                fields["endpoint"] = self.chance.choice(("host", "host2"))
            case 4:
                fields["process"] = self.chance.choice("pq")
            case 5:
                fields["instance"] = "j"
            case 6 if self.chance.random() < 0.05:
                fields["shutdown"] = True
            case 7:
                fields["rack"] = self.chance.choice("rs")
            case 8:
                fields["end_offsets"] = {1: self.chance.randrange(100)}
            case 9:
                # The topology has no such task.
                fields["owned"] = {"0": {9}}
            case 10:
                fields["client"] = ClientIdentity(CLIENT.client_id, "/1.2.3.4")
            case 11:
                fields["client"] = ClientIdentity("other", CLIENT.host)

    def _send(self, member: str, epoch: int, **fields: object) -> None:
        if self.chance.random() < 0.02:
            epoch -= 1
        given = None if epoch else TOPOLOGY
        if given and self.epochs["a"] and self.chance.random() < 0.3:
            given = OLD_TOPOLOGY
        response = self.world.beat_streams(
            member,
            epoch,
            given,
            endpoint_epoch=self.endpoint_epochs[member],
            **fields,
        )
        self.note(member, epoch, response)
        self.endpoint_epochs[member] = response.endpoint_information_epoch
        owned = by_subtopology(response.active_tasks)
        if owned is not None:
            self.reports[member] = owned


@pytest.mark.parametrize("seed", range(6))
def test_quiet_heartbeats_have_the_responses_of_the_general_code(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name = streams_membership, "quiet_heartbeat"
    seen = seen_both_ways(monkeypatch, module, name, lambda: StreamsStorm(seed).play())
    assert {getattr(each, "error_code", 0) for each in seen} > {0}
