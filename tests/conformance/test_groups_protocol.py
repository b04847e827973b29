"""Raw group requests in the oldest and newest versions, and errors that clients handle."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from barnabas.protocol.messages.metadata import FindCoordinatorRequest
from conformance.conftest import SECONDS, await_leaders
from conformance.group_members import group_bootstrap
from conformance.raw_client import RawClient
from waiting import eventually

__all__ = ["group_bootstrap"]

SESSION_MS = 120_000
SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x05other\x00\x00\x00\x00"


@pytest.fixture
def raw(group_bootstrap: str) -> Iterator[RawClient]:
    client = RawClient(group_bootstrap)
    yield client
    client.close()


@pytest.fixture
def topic(group_bootstrap: str) -> str:
    admin = AdminClient({"bootstrap.servers": group_bootstrap})
    name = f"raw-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(SECONDS)
    await_leaders(admin, name, 1)
    return name


@pytest.fixture
def group(raw: RawClient) -> str:
    """A unique group whose coordinator is loaded."""
    name = f"raw-{uuid.uuid4().hex[:8]}"

    def is_loaded() -> bool:
        return not (
            raw.ask(FindCoordinatorRequest(key=name), 0).error_code
            or raw.ask(ListGroupsRequest(), 0).error_code
            or raw.ask(DescribeGroupsRequest(groups=[name]), 0).groups[0].error_code
        )

    eventually(is_loaded)
    return name


@pytest.fixture
def send(raw: RawClient, group: str) -> Callable[..., Any]:
    """Return a function that sends a request of the group and returns the response."""

    def send_request(request_class: type, version: int, **fields: object) -> Any:
        return raw.ask(request_class(**{"group_id": group, **fields}), version)

    return send_request


def join(send: Callable[..., Any], version: int, member: str = "", **fields: object) -> Any:
    values: dict[str, object] = {
        "session_timeout_ms": SESSION_MS,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    }
    if version >= 1:
        values["rebalance_timeout_ms"] = SESSION_MS
    return send(JoinGroupRequest, version, **(values | fields))


def commit(send: Callable[..., Any], topic: str, generation: int, member: str) -> int:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata=""
    )
    response = send(
        OffsetCommitRequest,
        8,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    error: int = response.topics[0].partitions[0].error_code
    return error


@pytest.mark.parametrize("version", range(10))
def test_join_sync_heartbeat_and_leave_work_in_every_version(
    send: Callable[..., Any], raw: RawClient, group: str, version: int
) -> None:
    joined = join(send, version)
    if version >= 4:
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        joined = join(send, version, joined.member_id)
    assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 1)
    assert joined.leader == joined.member_id == joined.members[0].member_id
    member, older = joined.member_id, min(version, 5)
    names = {"protocol_type": "consumer", "protocol_name": "range"} if older == 5 else {}
    share = SyncGroupRequestAssignment(member_id=member, assignment=b"share")
    synced = send(
        SyncGroupRequest, older, generation_id=1, member_id=member, assignments=[share], **names
    )
    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"share")
    beat = min(version, 4)
    assert send(HeartbeatRequest, beat, generation_id=1, member_id=member).error_code == 0
    wrong = send(HeartbeatRequest, beat, generation_id=2, member_id=member)
    assert wrong.error_code == ErrorCode.ILLEGAL_GENERATION
    described = raw.ask(DescribeGroupsRequest(groups=[group]), min(version, 6)).groups[0]
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert described.members[0].client_host == "/127.0.0.1"
    listed = raw.ask(ListGroupsRequest(), older).groups
    assert (group, "consumer") in [(each.group_id, each.protocol_type) for each in listed]
    if older >= 3:
        left = send(LeaveGroupRequest, older, members=[MemberIdentity(member_id=member)])
        assert left.members[0].error_code == 0
    else:
        left = send(LeaveGroupRequest, older, member_id=member)
    assert left.error_code == 0


def test_invalid_requests_have_kafkas_error_codes(
    send: Callable[..., Any], raw: RawClient, topic: str
) -> None:
    assert join(send, 9, session_timeout_ms=-1).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert join(send, 9, group_id="").error_code == ErrorCode.INVALID_GROUP_ID
    assert join(send, 9, protocols=[]).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    unknown = join(send, 6, "unknown-member")
    assert (unknown.error_code, unknown.protocol_name) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert commit(send, topic, 3, "unknown-member") == ErrorCode.UNKNOWN_MEMBER_ID
    member = join(send, 3).member_id
    assert commit(send, topic, 1, member) == ErrorCode.REBALANCE_IN_PROGRESS
    synced = send(SyncGroupRequest, 5, generation_id=1, member_id=member, assignments=[])
    assert synced.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    synced = send(SyncGroupRequest, 4, generation_id=1, member_id=member, assignments=[])
    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"")
    assert commit(send, topic, 0, member) == ErrorCode.ILLEGAL_GENERATION
    assert commit(send, topic, -1, "") == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(send, topic, 1, member) == ErrorCode.NONE


def test_static_members_are_fenced_and_returning_leaders_skip_the_assignment(
    send: Callable[..., Any],
) -> None:
    first = join(send, 9, group_instance_id="i")
    names = {"protocol_type": "consumer", "protocol_name": "range", "group_instance_id": "i"}
    share = SyncGroupRequestAssignment(member_id=first.member_id, assignment=b"share")
    send(
        SyncGroupRequest,
        5,
        generation_id=1,
        member_id=first.member_id,
        assignments=[share],
        **names,
    )
    back = join(send, 9, group_instance_id="i")
    assert (back.skip_assignment, back.generation_id) == (True, 1)
    fenced = send(
        HeartbeatRequest, 4, generation_id=1, member_id=first.member_id, group_instance_id="i"
    )
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID
    older = join(send, 8, group_instance_id="i")
    assert (older.skip_assignment, older.leader) == (False, back.member_id)
    synced = send(
        SyncGroupRequest, 5, generation_id=1, member_id=older.member_id, assignments=[], **names
    )
    assert synced.assignment == b"share"
    leaving = [MemberIdentity(member_id="", group_instance_id=each) for each in ("i", "j")]
    left = send(LeaveGroupRequest, 5, members=leaving).members
    assert [each.error_code for each in left] == [0, ErrorCode.UNKNOWN_MEMBER_ID]


def test_missing_groups_and_offsets_have_kafkas_errors(
    send: Callable[..., Any], raw: RawClient, group: str, topic: str
) -> None:
    (described,) = raw.ask(DescribeGroupsRequest(groups=["no-group"]), 6).groups
    assert (described.error_code, described.group_state) == (69, "Dead")
    assert described.error_message == "Group no-group not found."
    (described,) = raw.ask(DescribeGroupsRequest(groups=["no-group"]), 5).groups
    assert (described.error_code, described.group_state) == (0, "Dead")
    deleted = raw.ask(DeleteGroupsRequest(groups_names=["no-group"]), 2).results[0]
    assert deleted.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    deletion = OffsetDeleteRequestTopic(
        name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=n) for n in (0, 9)]
    )
    assert (
        send(OffsetDeleteRequest, 0, topics=[deletion]).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    )
    assert commit(send, topic, -1, "") == ErrorCode.NONE
    (deleted_topic,) = send(OffsetDeleteRequest, 0, topics=[deletion]).topics
    found = {each.partition_index: each.error_code for each in deleted_topic.partitions}
    assert found == {0: ErrorCode.NONE, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert raw.ask(DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code == 0


def test_groups_are_listed_by_state_and_type(
    send: Callable[..., Any], raw: RawClient, group: str, topic: str
) -> None:
    commit(send, topic, -1, "")

    def is_listed(**filters: list[str]) -> bool:
        listed = raw.ask(ListGroupsRequest(**filters), 5).groups
        return group in [each.group_id for each in listed]

    assert is_listed(states_filter=["empty"], types_filter=["Classic"])
    assert not is_listed(states_filter=["Stable"])
    assert not is_listed(types_filter=["consumer"])
    assert not is_listed(states_filter=["bogus"])
