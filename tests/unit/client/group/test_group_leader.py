"""The leader of a cooperative group: assignments that it must refuse."""

from __future__ import annotations

from typing import Any

from barnabas.client.group.assignor import (
    Assignment,
    AssignorError,
    MemberSubscription,
    RebalanceProtocol,
)
from barnabas.client.group.group_leader import GroupLeader, write_subscription
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.messages.groups import JoinGroupResponse, JoinGroupResponseMember
from unit.client.group.scripted_group import ScriptedGroup

TP = TopicPartition("t", 0)


class Moving:
    """Gives the partition to the second member, even if the first one owns it."""

    name = "moving"

    def assign(self, _topics: object, _members: object) -> dict[str, Assignment]:
        return {"second": Assignment([TP])}


def outcome(owner: str, protocol: RebalanceProtocol) -> tuple[list[Any], BaseException | None]:
    group: Any = ScriptedGroup()
    leader = GroupLeader(group, {"moving": Moving()}, protocol, lambda: None)  # type: ignore[dict-item]
    members = [
        JoinGroupResponseMember(
            member_id=name,
            metadata=write_subscription(MemberSubscription(["t"], [TP] if name == owner else [])),
        )
        for name in ("first", "second")
    ]
    joined = JoinGroupResponse(
        error_code=0,
        generation_id=1,
        protocol_name="moving",
        leader="first",
        member_id="first",
        members=members,
    )
    ended: list[tuple[list[Any], BaseException | None]] = []
    leader.assign(joined, lambda found, error: ended.append((found, error)))
    leader.resign()
    (one,) = ended
    return one


def test_a_cooperative_assignment_does_not_move_owned_partitions() -> None:
    assigned, error = outcome("first", RebalanceProtocol.COOPERATIVE)
    assert isinstance(error, AssignorError)
    assert "t-0" in str(error)
    assert assigned == []


def test_partitions_without_another_owner_are_assigned() -> None:
    for owner, protocol in (
        ("second", RebalanceProtocol.COOPERATIVE),
        ("nobody", RebalanceProtocol.COOPERATIVE),
        ("first", RebalanceProtocol.EAGER),
    ):
        assigned, error = outcome(owner, protocol)
        assert error is None
        assert [each.member_id for each in assigned] == ["first", "second"]
