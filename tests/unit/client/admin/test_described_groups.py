"""Descriptions of classic groups, whose members choose the bytes of their subscriptions."""

from __future__ import annotations

import pytest

from barnabas.client.admin.group_descriptions import GroupDescription, describe_classic
from barnabas.protocol.messages.groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from unit.coordinator.members_world import subscription

PLAIN = subscription("a", "b")


@pytest.mark.parametrize(
    ("metadata", "topics"),
    [
        (PLAIN, ("a", "b")),
        # Some clients write a version whose fields they omit.
        (b"\0\1" + PLAIN[2:], ("a", "b")),
        (PLAIN[:-4], ()),
        (b"", ()),
    ],
)
def test_the_topics_of_a_member_are_read_as_brokers_read_them(
    metadata: bytes, topics: tuple[str, ...]
) -> None:
    member = DescribedGroupMember(
        member_id="m",
        client_id="c",
        client_host="/host",
        member_metadata=metadata,
        member_assignment=b"",
    )
    group = DescribedGroup(
        error_code=0,
        group_id="g",
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=[member],
    )
    described = describe_classic(["g"]).read(DescribeGroupsResponse(groups=[group]))["g"]
    assert isinstance(described, GroupDescription)
    assert [each.topics for each in described.members] == [topics]
