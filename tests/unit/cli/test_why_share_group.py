"""Each class of reasons why members of a share group get no record, and its facts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barnabas.cli.why.facts import (
    BrokerFacts,
    GroupFacts,
    LogOffsets,
    ShareFacts,
    ShareLimits,
    SharePartitionFacts,
    ShareReading,
)
from barnabas.cli.why.group_reasons import group_reasons
from barnabas.cli.why.reasons import Reason
from barnabas.client.admin.group_descriptions import GroupDescription, GroupMember
from barnabas.client.admin.share_groups import (
    ShareOffset,
    ShareRecordState,
    ShareState,
    ShareStateBatch,
)
from barnabas.client.errors import ClientError, broker_error
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
BROKERS = BrokerFacts(frozenset({1, 2, 3}), controller=1)
LOG = LogOffsets(1, 0, 100, 100, 100)
LIMITS = ShareLimits(5, 30_000, 2_000)
AVAILABLE, ARCHIVED = ShareRecordState.AVAILABLE, ShareRecordState.ARCHIVED


def member(name: str, *assignment: TopicPartition) -> GroupMember:
    return GroupMember(f"{name}-id", None, name, "10.0.0.1", ("t",), assignment)


A, B = member("a", ZERO), member("b", ZERO)


def reading(start: int, lag: int, *batches: ShareStateBatch, complete: int = 0) -> ShareReading:
    return ShareReading(ShareOffset(start, 0, lag), ShareState(start, complete, batches))


def partition(
    now: ShareReading, owners: tuple[GroupMember, ...] = (A,), **more: Any
) -> SharePartitionFacts:
    before, log = more.get("before", now), more.get("log", LOG)
    return SharePartitionFacts(ZERO, before, now, log, owners)


def reasons(
    *partitions: SharePartitionFacts,
    members: tuple[GroupMember, ...] = (A,),
    limits: ShareLimits | None = LIMITS,
    seconds: float = 6.5,
    **more: Any,
) -> list[Reason]:
    state = "Stable" if members else "Empty"
    described = GroupDescription("g", "share", state, "share", "simple", members, 1)
    shares = ShareFacts(partitions, limits)
    found = group_reasons(GroupFacts("g", described, 1, BROKERS, seconds, shares=shares, **more))
    for reason in found:
        assert reason.what
        assert reason.remedy or reason.verdict != "wrong", reason
    return found


def kinds(found: list[Reason]) -> list[str]:
    return [reason.kind for reason in found]


def test_a_group_that_has_processed_everything_has_no_problem() -> None:
    (reason,) = reasons(partition(reading(100, 0)))
    assert (reason.kind, reason.verdict) == ("nothing-to-read", "ok")
    (reason,) = reasons()
    assert (reason.kind, reason.verdict) == ("nothing-to-read", "ok")


def test_a_group_without_members_is_a_problem_only_with_a_lag() -> None:
    (reason,) = reasons(partition(reading(60, 40), ()), members=())
    assert (reason.kind, reason.verdict) == ("no-members", "wrong")
    assert "a lag of 40 records" in reason.what
    found = reasons(partition(reading(100, 0), ()), members=())
    assert [each.verdict for each in found] == ["note", "ok"]


def test_the_only_member_of_a_partition_has_its_records() -> None:
    (reason,) = reasons(partition(reading(60, 40)))
    assert (reason.kind, reason.verdict) == ("records-held", "wrong")
    assert "lag of 40 records from the start offset 60 on" in reason.what
    assert "a at 10.0.0.1 (member a-id), the only member with this partition," in reason.what
    assert "a lock ends after 30 s" in reason.what
    assert "share.partition.max.record.locks" not in reason.what


def test_records_that_are_held_for_less_than_a_commit_interval_prove_nothing() -> None:
    (reason,) = reasons(partition(reading(60, 40)), seconds=2.0)
    assert (reason.kind, reason.verdict) == ("records-held", "note")
    assert "--seconds" in reason.remedy


def test_several_members_of_a_partition_are_all_named() -> None:
    (reason,) = reasons(partition(reading(60, 40), (A, B)), members=(A, B))
    assert "one of the 2 members with this partition" in reason.what
    assert "(member a-id), b at 10.0.0.1 (member b-id); only the leader, broker 1" in reason.what


def test_records_that_are_processed_between_the_measurements_have_a_rate() -> None:
    now = reading(60, 30, complete=10)
    (reason,) = reasons(partition(now, before=reading(50, 50)), seconds=2.0)
    assert (reason.kind, reason.verdict) == ("reads", "ok")
    assert "about 10 records/s are processed, 30 are left" in reason.what
    # Members finish records behind one that is held.
    (reason,) = reasons(partition(now, before=reading(60, 40)))
    assert reason.kind == "reads"


def test_delivered_records_are_listed_with_their_delivery_counts() -> None:
    state = reading(
        60, 40, ShareStateBatch(60, 60, AVAILABLE, 2), ShareStateBatch(62, 64, AVAILABLE, 1)
    )
    first, second = reasons(partition(state))
    assert (first.kind, second.kind) == ("delivered-before", "records-held")
    assert "60 (2 deliveries), 62 to 64 (1 delivery)" in first.what


def test_a_record_before_its_last_delivery_is_named() -> None:
    state = reading(60, 40, ShareStateBatch(60, 60, AVAILABLE, 4))
    first = reasons(partition(state))[0]
    assert first.kind == "last-delivery"
    assert "share.delivery.count.limit=5" in first.what
    assert "60 (4 deliveries)" in first.what
    assert "barnabas consume -p 0 --from 60 -n 1 t" in first.remedy
    # Without the limit it is a record like others.
    assert kinds(reasons(partition(state), limits=None))[0] == "delivered-before"


def test_only_records_at_the_limit_are_given_up() -> None:
    state = reading(
        60, 40, ShareStateBatch(61, 61, ARCHIVED, 5), ShareStateBatch(62, 62, ARCHIVED, 1)
    )
    first = reasons(partition(state))[0]
    assert first.kind == "records-given-up"
    assert "61 (5 deliveries)" in first.what
    assert "62" not in first.what


def test_dead_letters_that_are_not_written_yet_are_reported() -> None:
    state = reading(60, 40, ShareStateBatch(60, 61, ShareRecordState.ARCHIVING, 5))
    assert kinds(reasons(partition(state))) == ["dead-letter-pending", "records-held"]


def test_records_below_the_start_offset_are_not_listed() -> None:
    state = reading(60, 40, ShareStateBatch(58, 59, AVAILABLE, 4))
    assert kinds(reasons(partition(state))) == ["records-held"]


def test_a_partition_with_the_limit_of_records_in_flight_is_full() -> None:
    limits = replace(LIMITS, record_locks=30)
    full = reading(60, 11, ShareStateBatch(61, 89, ShareRecordState.ACKNOWLEDGED, 1), complete=29)
    found = reasons(partition(full), limits=limits)
    assert kinds(found) == ["in-flight-full", "records-held"]
    assert "30 records are in flight, from the start offset 60 to 89" in found[0].what
    almost = reading(60, 12, ShareStateBatch(61, 88, ShareRecordState.ACKNOWLEDGED, 1), complete=28)
    assert kinds(reasons(partition(almost), limits=limits)) == ["records-held"]
    # Nothing waits behind the records in flight.
    at_end = partition(full, log=LogOffsets(1, 0, 90, 90, 90))
    assert kinds(reasons(at_end, limits=limits)) == ["records-held"]


def test_a_large_lag_may_be_that_of_a_full_partition() -> None:
    (reason,) = reasons(partition(reading(60, 40)), limits=replace(LIMITS, record_locks=40))
    assert "with 40 records in flight (share.partition.max.record.locks)" in reason.what


def test_members_that_have_acknowledged_nothing_are_named() -> None:
    nothing = ShareReading(ShareOffset(-1, 0, -1), ShareState(-1, -1, ()))
    (reason,) = reasons(partition(nothing))
    assert (reason.kind, reason.verdict) == ("nothing-acknowledged", "note")
    assert "a at 10.0.0.1 (member a-id), the only member" in reason.what
    assert reasons(partition(nothing, log=LogOffsets(1, 100, 100, 100, 100))) == []


def test_the_first_acknowledgement_is_progress() -> None:
    nothing = ShareReading(ShareOffset(-1, 0, -1), ShareState(-1, -1, ()))
    assert kinds(reasons(partition(reading(5, 95), before=nothing))) == ["reads"]


def test_missing_topics_members_without_partitions_and_uninitialized_partitions() -> None:
    idle = member("b")
    found = reasons(
        partition(reading(100, 0)),
        members=(A, idle),
        missing_topics=frozenset({"u"}),
        unread=[ONE],
    )
    assert kinds(found) == ["members-idle", "topic-missing", "partitions-not-initialized"]
    assert "1 of 2 members have no partitions (b at 10.0.0.1 (member b-id))" in found[0].what
    assert "subscribes to u" in found[1].what
    assert "no member has t-1" in found[2].what


def failed(code: ErrorCode) -> ClientError:
    return broker_error(code, "state of t-0")


def test_a_user_without_the_right_still_learns_the_lag() -> None:
    refused = ShareReading(ShareOffset(60, 0, 40), failed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    found = reasons(partition(refused))
    assert kinds(found) == ["states-not-allowed", "records-held"]
    assert "CLUSTER_ACTION" in found[0].what
    before = ShareReading(ShareOffset(50, 0, 50), refused.state)
    assert kinds(reasons(partition(refused, before=before))) == ["states-not-allowed", "reads"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, "state-unknown"),
        (ErrorCode.FENCED_LEADER_EPOCH, "state-moves"),
    ],
)
def test_a_state_that_cannot_be_read_is_reported(code: ErrorCode, kind: str) -> None:
    found = reasons(partition(ShareReading(ShareOffset(60, 0, 40), failed(code))))
    assert kinds(found) == [kind, "records-held"]


def test_a_partition_without_a_leader_is_unavailable() -> None:
    (reason,) = reasons(partition(reading(60, 40), log=LogOffsets(-1)))
    assert reason.kind == "partition-unavailable"
    assert reason.remedy == "`barnabas why t:0`"


def test_an_open_transaction_holds_back_a_read_committed_group_only() -> None:
    waiting = partition(reading(60, 40), log=LogOffsets(1, 0, 60, 100, 100))
    committed = replace(LIMITS, is_read_committed=True)
    assert kinds(reasons(waiting, limits=committed)) == ["open-transaction"]
    assert kinds(reasons(waiting)) == ["records-held"]


def test_deleted_records_are_reported() -> None:
    found = reasons(partition(reading(60, 40), log=LogOffsets(1, 70, 100, 100, 100)))
    assert kinds(found) == ["below-log-start"]
    assert "from the start offset 60 to 69 were deleted" in found[0].what
