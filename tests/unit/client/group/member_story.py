"""A member of a classic group, a coordinator with scripted responses, and virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.client.group.assignor import (
    Assignment,
    Assignor,
    MemberSubscription,
    RebalanceProtocol,
    Topics,
)
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from unit.client.group.group_host import GroupHost
from unit.client.group.scripted_group import ScriptedGroup

JOIN, SYNC, BEAT, LEAVE = (
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
)
FIND = ApiKey.FIND_COORDINATOR
EAGER = {"partition_assignment_strategy": "range"}


class CooperativeRange(Assignor):
    """Assigns to the only member the partitions that the test chooses."""

    name = "cooperative-range"
    protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)
    # Number of partitions to assign; a negative number raises an error.
    most = 99
    # A topic without a subscription.
    beside: str | None = None

    def assign(
        self, topics: Topics, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, Assignment]:
        if self.most < 0:
            raise RuntimeError("the assignor failed")
        every = [TopicPartition(t, p.number) for t in topics for p in topics[t]][: self.most]
        if self.beside is not None:
            every.append(TopicPartition(self.beside, 0))
        return {name: Assignment(every) for name in members}


class Story:
    """A member, its group and the virtual time."""

    def __init__(self, topics: tuple[str, ...] = ("t",), **keys: object) -> None:
        self.group = ScriptedGroup(**(EAGER | keys))
        self.host = GroupHost(self.group, topics)
        self.member = self.host.membership

    def script(self, api_key: ApiKey, *entries: Any) -> None:
        self.group.script[api_key] = list(entries)

    def run(self, duration_ms: float) -> None:
        self.group.world.run_for(duration_ms)

    def join(self) -> Story:
        """Poll until the member is stable, and continue to poll."""
        self.host.poll_on()
        self.until(lambda: self.member.is_stable and "assign" in self.host.names)
        return self

    def until(self, predicate: Any, limit_ms: float = 20_000) -> None:
        assert self.group.world.run_until(predicate, limit_ms), (self.host.told, self.host.raised)

    def forget_the_past(self) -> None:
        self.host.told.clear()
        self.group.requests.clear()
        self.group.times.clear()
        self.group.apart.clear()

    def joins(self) -> list[Any]:
        return self.group.sent(JOIN)
