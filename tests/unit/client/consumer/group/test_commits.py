"""Commits of members, and their errors when the coordinator refuses them."""

from __future__ import annotations

from typing import Any

from barnabas.client.connections.coordinators import Coordinators
from barnabas.client.consumer.assignment.subscription import Subscription
from barnabas.client.consumer.errors import CommitFailedError
from barnabas.client.consumer.group.commits import CommitDependencies, Commits
from barnabas.client.errors import BrokerError, ClientError
from barnabas.client.group.group_offsets import CommittedOffset, GroupOffsets
from barnabas.client.group.membership import GroupGeneration
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from unit.client.scripted_cluster import ScriptedCluster

OFFSETS = {TopicPartition("t", 0): CommittedOffset(3)}
STALE = ErrorCode.STALE_MEMBER_EPOCH


class Member:
    """A member that commits; the test changes its epoch."""

    def __init__(self, member_id: str = "m") -> None:
        self.cluster: Any = ScriptedCluster()
        self.epoch = 5
        self.ended: list[ClientError | None] = []
        parts = CommitDependencies(
            Subscription(exclude_internal=True),
            lambda: GroupGeneration("g", self.epoch, member_id, None, is_epoch=True),
            lambda: None,
            lambda _error, _sent_by: None,
            lambda _offsets, _latency: None,
            lambda: None,
        )
        offsets = GroupOffsets(self.cluster, Coordinators(self.cluster))
        self.commits = Commits(self.cluster, offsets, parts, None)

    def commit(self, timeout_ms: float) -> None:
        self.commits.commit(OFFSETS, timeout_ms, lambda _done, error: self.ended.append(error))
        self._find()

    def commit_later(self) -> None:
        self.commits.commit_later(OFFSETS, lambda _offsets, error: self.ended.append(error))
        self._find()

    def _find(self) -> None:
        _, answer = self.cluster.take(4)
        found = Coordinator(key="g", node_id=1, host="h", port=1, error_code=0, error_message=None)
        answer(FindCoordinatorResponse(coordinators=[found]))

    def answer(self, code: int = 0) -> int:
        """Answer the oldest commit; return its epoch."""
        request, answer = self.cluster.take(9)
        partition = OffsetCommitResponsePartition(partition_index=0, error_code=code)
        topic = OffsetCommitResponseTopic(name="t", partitions=[partition])
        answer(OffsetCommitResponse(topics=[topic]))
        epoch: int = request.generation_id_or_member_epoch
        return epoch


def test_a_commit_with_a_stale_epoch_is_retried_with_the_next_epoch() -> None:
    member = Member()
    member.commit(10_000)
    assert member.answer(STALE) == 5
    member.cluster.time.advance(100)
    # No heartbeat was answered meanwhile.
    assert member.answer(STALE) == 5
    member.epoch = 6
    member.cluster.time.advance(100)
    assert member.ended == []
    assert member.answer() == 6
    assert member.ended == [None]


def test_a_commit_is_retried_immediately_if_the_epoch_has_already_changed() -> None:
    member = Member()
    member.commit(10_000)
    member.epoch = 6
    assert member.answer(STALE) == 5
    member.cluster.time.advance(0)
    assert member.answer() == 6
    assert member.ended == [None]


def test_a_commit_whose_epoch_stays_stale_fails() -> None:
    member = Member()
    member.commit(150)
    for _ in range(2):
        member.answer(STALE)
        member.cluster.time.advance(100)
    (error,) = member.ended
    assert isinstance(error, CommitFailedError)
    assert error.error_code is STALE


def test_an_asynchronous_commit_is_not_retried() -> None:
    member = Member()
    member.commit_later()
    member.answer(STALE)
    member.commits.run_callbacks()
    (error,) = member.ended
    assert isinstance(error, BrokerError)
    assert not isinstance(error, CommitFailedError)
    assert error.error_code is STALE
    assert not member.cluster.calls


def test_a_commit_without_membership_reports_that_the_group_has_members() -> None:
    by_hand = Member(member_id="")
    by_hand.commit(10_000)
    by_hand.answer(ErrorCode.UNKNOWN_MEMBER_ID)
    (error,) = by_hand.ended
    assert isinstance(error, CommitFailedError)
    assert "the group has members: stop them" in str(error)
    assert "max.poll.interval.ms" not in str(error)


def test_a_commit_of_a_removed_member_reports_the_cause() -> None:
    member = Member()
    member.commit(10_000)
    member.answer(ErrorCode.UNKNOWN_MEMBER_ID)
    (error,) = member.ended
    assert isinstance(error, CommitFailedError)
    assert "session.timeout.ms" in str(error)
    assert "max.poll.interval.ms" in str(error)
