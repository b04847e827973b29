"""Commits of members, and their errors when the coordinator refuses them."""

from __future__ import annotations

from typing import Any

from barnabas.client.connections.lookups import Coordinators
from barnabas.client.consumer.assignment.subscription import Subscription
from barnabas.client.consumer.commits import CommitDependencies, Commits
from barnabas.client.consumer.errors import CommitFailedError
from barnabas.client.errors import BrokerError, ClientError
from barnabas.client.group.group_offsets import CommittedOffset, GroupOffsets
from barnabas.client.group.membership import GroupGeneration
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.metadata import Coordinator, FindCoordinatorResponse
from unit.client.scripted_cluster import ScriptedCluster

TP = TopicPartition("t", 0)
OFFSETS = {TP: CommittedOffset(3)}
STALE = ErrorCode.STALE_MEMBER_EPOCH


class Member:
    """A member that commits; the test changes its epoch."""

    def __init__(self, member_id: str = "m", interval_ms: float | None = None) -> None:
        self.cluster: Any = ScriptedCluster()
        self.epoch = 5
        self.ended: list[ClientError | None] = []
        # The generations of the commits that the membership was told to be refused.
        self.refused: list[GroupGeneration] = []
        subscription = Subscription(exclude_internal=True)
        subscription.assign_by_hand([TP])
        subscription.partition(TP).seek(3)
        parts = CommitDependencies(
            subscription,
            lambda: GroupGeneration("g", self.epoch, member_id, None, is_epoch=True),
            lambda: None,
            lambda _error, sent_by: self.refused.append(sent_by),
            lambda _offsets, _latency: None,
            lambda: None,
        )
        offsets = GroupOffsets(self.cluster, Coordinators(self.cluster))
        self.commits = Commits(self.cluster, offsets, parts, interval_ms)

    def commit(self, timeout_ms: float) -> None:
        self.commits.commit(OFFSETS, timeout_ms, lambda _done, error: self.ended.append(error))
        self._find()

    def commit_later(self) -> None:
        self.commits.commit_later(OFFSETS, lambda _offsets, error: self.ended.append(error))
        self._find()

    def commit_automatically(self, delay_ms: float) -> int:
        """Let time pass and call as a poll does; return the number of commits in flight."""
        self.cluster.time.advance(delay_ms)
        self.commits.maybe_auto_commit()
        if self.cluster.calls and self.cluster.calls[0].api_key == ApiKey.FIND_COORDINATOR:
            self._find()
        return len(self.cluster.calls)

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


def test_the_membership_gets_the_generation_that_sent_a_refused_commit() -> None:
    member = Member()
    member.commit(0)
    member.epoch = 6
    member.answer(ErrorCode.UNKNOWN_MEMBER_ID)
    assert [generation.generation_id for generation in member.refused] == [5]


def test_one_automatic_commit_is_in_flight() -> None:
    member = Member(interval_ms=5_000.0)
    assert member.commit_automatically(5_000) == 1
    assert member.commit_automatically(5_000) == 1
    member.answer()
    assert member.commit_automatically(5_000) == 1


def test_an_automatic_commit_is_repeated_after_the_backoff_of_a_retriable_error() -> None:
    member = Member(interval_ms=5_000.0)
    member.commit_automatically(5_000)
    member.answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert member.commits.next_auto_ms() == member.cluster.time.now + 100
    assert member.commit_automatically(99) == 0
    assert member.commit_automatically(1) == 1


def test_an_automatic_commit_is_repeated_after_the_interval_of_another_error() -> None:
    member = Member(interval_ms=5_000.0)
    member.commit_automatically(5_000)
    member.answer(ErrorCode.OFFSET_METADATA_TOO_LARGE)
    assert member.commit_automatically(4_999) == 0
    assert member.commit_automatically(1) == 1
