"""A member of a share group, with a scripted coordinator on the simulated network."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client.config import ClientConfig
from barnabas.client.connections.cluster import Cluster
from barnabas.client.connections.lookups import Coordinators
from barnabas.client.errors import ClientError
from barnabas.client.share.share_membership import ShareMembership, ShareMembershipHost
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.share_consumers import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.sim.world import SimWorld
from unit.client.group.scripted_coordinator import ScriptedCoordinator

T = b"t" * 16
U = b"u" * 16
INTERVAL_MS = 1000
POLL_MS = 10.0
JOIN, LEAVE = 0, -1


class Group:
    """One member, and a coordinator that assigns `target` in its next response.

    `say` has error codes of the next responses; None is no response.
    """

    def __init__(self, **keys: object) -> None:
        self.world = SimWorld(1)
        self.broker = ScriptedCoordinator(self.world)
        self.broker.topics = {"t": (T, 4), "u": (U, 1)}
        self.broker.answers[ApiKey.SHARE_GROUP_HEARTBEAT] = self._answer
        config = ClientConfig.parse(
            {"bootstrap.servers": self.broker.address, "group.id": "g", **keys}
        )
        cluster = Cluster(self.world.host("c").runtime, config)
        self.topics = ["t"]
        self.assigned: list[TopicPartition] = []
        host = ShareMembershipHost(lambda: self.topics, self._assign, lambda: None)
        self.member = ShareMembership(cluster, Coordinators(cluster), "m", host)
        self.heard: list[ShareGroupHeartbeatRequest] = []
        self.say: list[ErrorCode | None] = []
        self.target: dict[bytes, list[int]] | None = {T: [0, 1]}
        self.epoch = 0

    def _assign(self, partitions: Any) -> None:
        self.assigned = list(partitions)

    def _answer(self, request: Any) -> ShareGroupHeartbeatResponse | None:
        self.heard.append(request)
        code = self.say.pop(0) if self.say else ErrorCode.NONE
        if code is None:
            return None
        assignment = None
        if self.target is not None and not code:
            target, self.target = self.target, None
            self.epoch += 1
            assignment = Assignment(
                topic_partitions=[
                    TopicPartitions(topic_id=topic_id, partitions=numbers)
                    for topic_id, numbers in target.items()
                ]
            )
        return ShareGroupHeartbeatResponse(
            error_code=code,
            member_id="m",
            member_epoch=self.epoch,
            heartbeat_interval_ms=INTERVAL_MS,
            assignment=assignment,
        )

    def run(self, duration_ms: float = 200.0, *, polling: bool = True) -> None:
        """Advance virtual time, with or without polls."""
        end_ms = self.world.scheduler.now_ms + duration_ms
        while self.world.scheduler.now_ms < end_ms:
            if polling:
                self.member.poll()
            self.world.run_for(POLL_MS)

    def joined(self) -> Group:
        """Return this group when its member has joined, with empty records."""
        self.run()
        assert self.assigned == [TopicPartition("t", 0), TopicPartition("t", 1)]
        self.heard.clear()
        return self

    @property
    def epochs(self) -> list[int]:
        """The member epochs of the heartbeats since `joined`."""
        return [request.member_epoch for request in self.heard]


def test_the_first_heartbeat_joins_with_topics_and_rack() -> None:
    group = Group(**{"client.rack": "r"})
    group.run()
    [request] = group.heard
    assert (request.group_id, request.member_id, request.member_epoch) == ("g", "m", JOIN)
    assert (request.subscribed_topic_names, request.rack_id) == (["t"], "r")
    assert group.assigned == [TopicPartition("t", 0), TopicPartition("t", 1)]


def test_later_heartbeats_list_only_changes() -> None:
    group = Group().joined()
    group.run(INTERVAL_MS * 1.1)
    group.topics = ["t", "u"]
    group.target = {T: [3], U: [0]}
    group.member.on_subscription_changed()
    group.run()
    assert [request.subscribed_topic_names for request in group.heard] == [None, ["t", "u"]]
    assert group.epochs == [1, 1]
    assert group.assigned == [TopicPartition("t", 3), TopicPartition("u", 0)]


def test_an_unknown_member_loses_its_partitions_and_joins_again_with_the_same_id() -> None:
    group = Group().joined()
    group.say = [ErrorCode.UNKNOWN_MEMBER_ID]
    group.run(INTERVAL_MS, polling=False)
    assert not group.assigned
    group.target = {T: [2]}
    group.run()
    assert group.epochs == [1, JOIN]
    assert group.heard[-1].subscribed_topic_names == ["t"]
    assert group.assigned == [TopicPartition("t", 2)]


def test_a_heartbeat_without_a_response_is_repeated_with_all_topics() -> None:
    group = Group(**{"request.timeout.ms": 100}).joined()
    group.say = [None]
    group.run(INTERVAL_MS * 2)
    assert group.heard[1].subscribed_topic_names == ["t"]
    assert group.assigned


def test_a_user_who_does_not_poll_in_time_leaves_the_group() -> None:
    group = Group(**{"max.poll.interval.ms": 3 * INTERVAL_MS}).joined()
    group.run(4 * INTERVAL_MS, polling=False)
    assert group.epochs[-1] == LEAVE
    assert not group.assigned
    group.target = {T: [0]}
    group.run()
    assert group.epochs[-1] == JOIN
    assert group.assigned == [TopicPartition("t", 0)]


def test_errors_that_are_not_retriable_end_the_membership_until_a_new_subscription() -> None:
    group = Group()
    group.say = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    with pytest.raises(ClientError) as caught:
        group.run()
    assert caught.value.error_code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    with pytest.raises(ClientError):
        group.member.poll()
    group.member.on_subscription_changed()
    group.joined()


def test_a_topic_that_is_not_authorized_is_reported_and_the_member_stays() -> None:
    group = Group().joined()
    group.say = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(ClientError) as caught:
        group.run(INTERVAL_MS * 1.5)
    assert caught.value.error_code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    group.run(INTERVAL_MS * 1.5)
    assert group.epochs == [1, 1]
    assert group.assigned


def test_brokers_without_share_groups_are_named_as_the_reason() -> None:
    group = Group()
    group.say = [ErrorCode.UNSUPPORTED_VERSION]
    with pytest.raises(ClientError, match=r"share\.version must be 1 or higher"):
        group.run()


def test_leaving_sends_the_last_heartbeat() -> None:
    group = Group().joined()
    left: list[bool] = []
    group.member.leave(lambda: left.append(True))
    assert not group.assigned
    group.run(polling=False)
    assert (group.epochs, left) == ([LEAVE], [True])


def test_a_member_that_never_joined_leaves_at_once() -> None:
    left: list[bool] = []
    Group().member.leave(lambda: left.append(True))
    assert left
