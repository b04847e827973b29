"""A member under the consumer protocol, its consumer, and its scripted coordinator."""

from __future__ import annotations

from typing import Any

from barnabas.client.config import ClientConfig
from barnabas.client.connections.cluster import Cluster
from barnabas.client.connections.lookups import Coordinators
from barnabas.client.group.consumer_protocol_membership import ConsumerProtocolMembership
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.groups import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitionsResponse,
)
from barnabas.sim.world import SimWorld
from unit.client.group.scripted_coordinator import ScriptedCoordinator
from unit.client.group.scripted_host import ScriptedHost

T = b"t" * 16
U = b"u" * 16
POLL_MS = 10.0
INTERVAL_MS = 1000


class Group:
    """One member, its consumer, and a coordinator that assigns `target` to a joining member.

    `say` has scripted responses, which take precedence: a response, an error code, or None for no
    response.
    """

    def __init__(self, **keys: object) -> None:
        self.world = SimWorld(1)
        self.broker = ScriptedCoordinator(self.world)
        self.broker.topics = {"t": (T, 4), "u": (U, 1)}
        self.broker.answers[ApiKey.CONSUMER_GROUP_HEARTBEAT] = self._answer
        given = {
            "bootstrap.servers": self.broker.address,
            "group.id": "g",
            "group.protocol": "consumer",
            **keys,
        }
        config = ClientConfig.parse(given)
        self.cluster = Cluster(self.world.host("c").runtime, config)
        self.host = ScriptedHost("t")
        self.member = ConsumerProtocolMembership(
            self.cluster, Coordinators(self.cluster), config, self.host
        )
        self.heard: list[ConsumerGroupHeartbeatRequest] = []
        self.heard_ms: list[float] = []
        self.say: list[Any] = []
        self.epoch = 0
        # The target in the next response; None for a response without a target.
        self.target: dict[bytes, list[int]] | None = {T: [0, 1]}

    def _answer(self, request: Any) -> ConsumerGroupHeartbeatResponse | None:
        self.heard.append(request)
        self.heard_ms.append(self.world.scheduler.now_ms)
        if self.say:
            said = self.say.pop(0)
            if isinstance(said, ErrorCode):
                return answer(request, -1, code=said)
            assert said is None or isinstance(said, ConsumerGroupHeartbeatResponse)
            return said
        if request.member_epoch < 0:
            return answer(request, request.member_epoch)
        if request.member_epoch == 0 or self.target is not None:
            self.epoch += 1
        told, self.target = self.target, None
        return answer(request, self.epoch, told)

    def run(self, duration_ms: float = 100.0, *, polling: bool = True) -> None:
        """Advance virtual time, with or without polls."""
        end_ms = self.world.scheduler.now_ms + duration_ms
        while self.world.scheduler.now_ms < end_ms:
            if polling:
                self.member.poll()
            self.world.run_for(POLL_MS)

    def joined(self) -> Group:
        """Return a group whose member has joined, with empty records."""
        self.run()
        assert self.member.is_reconciled
        self.heard.clear()
        self.heard_ms.clear()
        self.host.done.clear()
        return self

    def give(self, target: dict[bytes, list[int]]) -> None:
        """Send this target with the response to the next heartbeat."""
        self.target = target
        self.run(INTERVAL_MS + 100)


def answer(
    request: Any,
    epoch: int,
    target: dict[bytes, list[int]] | None = None,
    code: int = 0,
    message: str | None = None,
) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if target is not None:
        topics = [TopicPartitionsResponse(topic_id=t, partitions=p) for t, p in target.items()]
        assignment = Assignment(topic_partitions=topics)
    return ConsumerGroupHeartbeatResponse(
        error_code=code,
        error_message=message,
        member_id=request.member_id if not code else None,
        member_epoch=epoch,
        heartbeat_interval_ms=0 if code else INTERVAL_MS,
        assignment=assignment,
    )


def owned(request: ConsumerGroupHeartbeatRequest) -> dict[bytes, list[int]] | None:
    if request.topic_partitions is None:
        return None
    return {topic.topic_id: list(topic.partitions) for topic in request.topic_partitions}
