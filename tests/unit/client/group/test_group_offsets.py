"""Committed offsets: the member in requests, fields by version, errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from barnabas.client.connections.lookups import Coordinators
from barnabas.client.errors import BrokerError, ClientError, ClientTimeoutError
from barnabas.client.group.group_offsets import CommittedOffset, GroupOffsets
from barnabas.client.group.membership import GroupGeneration
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from barnabas.protocol.messages.metadata import Coordinator, FindCoordinatorResponse
from unit.client.scripted_cluster import TOPIC_ID, ScriptedCluster

TP = TopicPartition("t", 0)
MEMBER = GroupGeneration("g", 5, "m", "i")
FIND_VERSION = 4


class Offsets:
    """Calls of `GroupOffsets` and their results."""

    def __init__(self, **keys: object) -> None:
        self.cluster: Any = ScriptedCluster(**keys)
        self.offsets = GroupOffsets(self.cluster, Coordinators(self.cluster))
        self.ended: list[tuple[Any, ClientError | None]] = []

    def commit(self, group: str | GroupGeneration = MEMBER, timeout_ms: float = 1_000) -> None:
        offsets = {TP: CommittedOffset(3, 2, "note")}
        self.offsets.commit(group, offsets, {"t": TOPIC_ID}, timeout_ms, self._end)

    def fetch(self, group: str | GroupGeneration | Callable[[], GroupGeneration] = MEMBER) -> None:
        self.offsets.committed(group, [TP], 1_000, self._end)

    def find(self) -> None:
        """Answer the search for the coordinator."""
        _, answer = self.cluster.take(FIND_VERSION)
        found = Coordinator(key="g", node_id=1, host="h", port=1, error_code=0, error_message=None)
        answer(FindCoordinatorResponse(coordinators=[found]))

    def take(self, version: int) -> tuple[Any, Any]:
        return self.cluster.take(version)

    def _end(self, result: Any, error: ClientError | None) -> None:
        self.ended.append((result, error))


def committed(code: int = 0, *, by_id: bool = False) -> OffsetCommitResponse:
    partition = OffsetCommitResponsePartition(partition_index=0, error_code=code)
    topic = OffsetCommitResponseTopic(name="t", partitions=[partition])
    if by_id:
        topic = OffsetCommitResponseTopic(topic_id=TOPIC_ID, partitions=[partition])
    return OffsetCommitResponse(topics=[topic])


def fetched(
    code: int = 0, group_code: int = 0, topic_id: bytes | None = None
) -> OffsetFetchResponse:
    partition = OffsetFetchResponsePartitions(
        partition_index=0,
        committed_offset=3,
        committed_leader_epoch=2,
        metadata="note",
        error_code=code,
    )
    topics = [OffsetFetchResponseTopics(name="t", partitions=[partition])]
    if topic_id is not None:
        topics = [OffsetFetchResponseTopics(topic_id=topic_id, partitions=[partition])]
    group = OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=group_code)
    return OffsetFetchResponse(groups=[group])


def test_a_commit_contains_the_generation_of_the_member() -> None:
    offsets = Offsets()
    offsets.commit()
    offsets.find()
    request, answer = offsets.take(9)
    sent_by = (
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
    )
    assert sent_by == MEMBER[:4]
    (partition,) = request.topics[0].partitions
    assert (partition.committed_offset, partition.committed_leader_epoch) == (3, 2)
    assert partition.committed_metadata == "note"
    answer(committed())
    assert offsets.ended == [(True, None)]


def test_without_a_membership_a_commit_contains_only_the_group() -> None:
    offsets = Offsets()
    offsets.commit("g")
    offsets.find()
    request, answer = offsets.take(9)
    assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")
    answer(committed(ErrorCode.UNKNOWN_MEMBER_ID))
    ((_, error),) = offsets.ended
    assert "the group has members" in str(error)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ],
)
def test_an_error_that_is_not_retriable_is_returned_at_once(code: ErrorCode) -> None:
    offsets = Offsets()
    offsets.commit()
    offsets.find()
    offsets.take(9)[1](committed(code))
    ((_, error),) = offsets.ended
    assert isinstance(error, BrokerError)
    assert error.error_code is code


@pytest.mark.parametrize(
    ("code", "searches"),
    [
        (ErrorCode.NOT_COORDINATOR, True),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, True),
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
    ],
)
def test_retriable_errors_are_retried_at_the_current_coordinator(
    code: ErrorCode, searches: bool
) -> None:
    offsets = Offsets()
    offsets.commit()
    offsets.find()
    offsets.take(9)[1](committed(code))
    assert not offsets.cluster.calls
    offsets.cluster.time.advance(200)
    if searches:
        offsets.find()
    offsets.take(9)[1](committed())
    assert offsets.ended == [(True, None)]


def test_a_commit_with_timeout_zero_is_tried_once() -> None:
    offsets = Offsets()
    offsets.commit(timeout_ms=0)
    offsets.find()
    offsets.take(9)[1](committed(ErrorCode.NOT_COORDINATOR))
    ((_, error),) = offsets.ended
    assert isinstance(error, ClientTimeoutError)
    assert error.error_code is ErrorCode.NOT_COORDINATOR


def test_read_committed_waits_for_transactions_if_the_version_supports_it() -> None:
    offsets = Offsets(isolation_level="read_committed")
    offsets.fetch()
    offsets.find()
    assert offsets.cluster.calls[0].build(7).require_stable
    assert not offsets.cluster.calls[0].build(6).require_stable
    offsets.take(8)[1](fetched(ErrorCode.UNSTABLE_OFFSET_COMMIT))
    offsets.cluster.time.advance(200)
    offsets.take(8)[1](fetched())
    assert offsets.ended == [({TP: CommittedOffset(3, 2, "note")}, None)]


def test_read_uncommitted_does_not_wait() -> None:
    offsets = Offsets()
    offsets.fetch()
    offsets.find()
    assert not offsets.cluster.calls[0].build(9).require_stable


def test_offset_fetch_contains_a_member_epoch_but_no_generation() -> None:
    offsets = Offsets()
    offsets.fetch()
    offsets.fetch(MEMBER._replace(is_epoch=True))
    offsets.find()
    offsets.find()
    by_generation = offsets.take(9)[0].groups[0]
    by_epoch = offsets.take(9)[0].groups[0]
    assert (by_generation.member_id, by_generation.member_epoch) == (None, -1)
    assert (by_epoch.member_id, by_epoch.member_epoch) == ("m", 5)


def test_the_error_of_a_group_is_returned() -> None:
    offsets = Offsets()
    offsets.fetch()
    offsets.find()
    offsets.take(8)[1](fetched(group_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    ((_, error),) = offsets.ended
    assert isinstance(error, BrokerError)
    assert error.error_code is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_a_member_reads_again_with_its_next_epoch() -> None:
    offsets = Offsets()
    member = MEMBER._replace(is_epoch=True)
    epochs = [member._replace(generation_id=6), member, member]
    offsets.fetch(epochs.pop)
    offsets.find()
    request, answer = offsets.take(9)
    assert request.groups[0].member_epoch == 5
    answer(fetched(group_code=ErrorCode.STALE_MEMBER_EPOCH))
    offsets.cluster.time.advance(200)
    request, answer = offsets.take(9)
    assert request.groups[0].member_epoch == 6
    answer(fetched())
    assert offsets.ended == [({TP: CommittedOffset(3, 2, "note")}, None)]


def test_offsets_are_committed_and_fetched_by_topic_id() -> None:
    offsets = Offsets()
    offsets.commit()
    offsets.find()
    assert offsets.cluster.calls[0].max_version is None
    request, answer = offsets.take(10)
    assert request.topics[0].topic_id == TOPIC_ID
    answer(committed(by_id=True))
    offsets.fetch()
    assert offsets.cluster.calls[0].max_version is None
    request, answer = offsets.take(10)
    assert request.groups[0].topics[0].topic_id == TOPIC_ID
    answer(fetched(topic_id=TOPIC_ID))
    assert offsets.ended == [(True, None), ({TP: CommittedOffset(3, 2, "note")}, None)]


def test_offsets_of_a_topic_without_a_known_id_are_sent_by_name() -> None:
    offsets = Offsets()
    offsets.offsets.commit("g", {TP: CommittedOffset(3)}, {"t": bytes(16)}, 0, offsets._end)
    offsets.find()
    assert offsets.cluster.calls.pop().max_version == 9
    offsets.cluster.metadata.topics.clear()
    offsets.fetch()
    assert offsets.cluster.calls.pop().max_version == 9
    offsets.offsets.committed("g", None, 1_000, offsets._end)
    assert offsets.cluster.calls.pop().max_version == 9


@pytest.mark.parametrize("is_created_again", [True, False])
def test_a_commit_for_a_deleted_topic_ends_when_metadata_shows_the_deletion(
    is_created_again: bool,
) -> None:
    offsets = Offsets()
    offsets.commit(timeout_ms=60_000)
    offsets.find()
    topics = offsets.cluster.metadata.topics

    def delete() -> None:
        if is_created_again:
            topics["t"] = replace(topics["t"], topic_id=b"n" * 16)
        else:
            topics.clear()

    offsets.cluster.on_refresh = [delete]
    offsets.take(10)[1](committed(ErrorCode.UNKNOWN_TOPIC_ID, by_id=True))
    offsets.cluster.time.advance(200)
    ((_, error),) = offsets.ended
    assert not error.retriable
    assert "the topic was deleted" in str(error)
    assert not offsets.cluster.calls


def test_offsets_are_fetched_again_if_the_topic_was_created_again_meanwhile() -> None:
    offsets = Offsets()
    offsets.fetch()
    offsets.find()
    _, answer = offsets.take(10)
    topics = offsets.cluster.metadata.topics
    topics["t"] = replace(topics["t"], topic_id=b"n" * 16)
    answer(fetched(topic_id=TOPIC_ID))
    offsets.cluster.time.advance(200)
    request, answer = offsets.take(10)
    assert request.groups[0].topics[0].topic_id == b"n" * 16
    answer(fetched(topic_id=b"n" * 16))
    assert offsets.ended == [({TP: CommittedOffset(3, 2, "note")}, None)]
