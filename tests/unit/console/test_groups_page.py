"""The members that the page of a group names beside each partition."""

from __future__ import annotations

import pytest

from barnabas.cli.admin.group_lag import PartitionProgress
from barnabas.client.admin.group_descriptions import GroupDescription, GroupMember
from barnabas.client.topic_partition import TopicPartition
from barnabas.console.pages.groups import reading_members

FIRST, SECOND = TopicPartition("jobs", 0), TopicPartition("jobs", 1)


def member(name: str, *partitions: TopicPartition) -> GroupMember:
    return GroupMember(name, None, "client", "127.0.0.1", assignment=partitions)


@pytest.mark.parametrize(("partition", "names"), [(FIRST, "a, b"), (SECOND, "b")])
def test_all_members_that_read_a_share_partition_are_named(
    partition: TopicPartition, names: str
) -> None:
    members = (member("a", FIRST), member("b", FIRST, SECOND))
    group = GroupDescription("workers", "share", "Stable", "share", "simple", members)
    progress = PartitionProgress(partition, 0, 1, "", None, 1)
    assert reading_members(group, progress) == names


def test_a_partition_without_a_member_names_none() -> None:
    group = GroupDescription("readers", "classic", "Empty", "consumer", "")
    assert reading_members(group, PartitionProgress(FIRST, 0, 1, "", None, 1)) == ""
