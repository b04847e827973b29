"""Share groups: describe them, and read and change their offsets (KIP-932, KIP-1226)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.client.admin.call import AdminCall, raise_error
from barnabas.client.admin.groups.groups import GroupDescription, GroupMember
from barnabas.client.errors import BrokerError, ClientError, broker_error
from barnabas.client.topic_partition import TopicPartition, by_topic
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from barnabas.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from barnabas.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from barnabas.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.protocol.schema import Message

__all__ = [
    "ShareOffset",
    "alter_share_offsets",
    "delete_share_offsets",
    "describe_share_groups",
    "describe_share_offsets",
]

Offsets = dict[TopicPartition, "ShareOffset | ClientError"]


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """The start offset of a share group in one partition."""

    start_offset: int
    leader_epoch: int
    # Number of records not yet delivered; -1 if the broker does not send it.
    lag: int


def describe_share_groups(
    groups: Sequence[str],
) -> AdminCall[dict[str, GroupDescription | ClientError]]:
    """Describe share groups with their members; other groups get GROUP_ID_NOT_FOUND."""

    def build(_version: int) -> Message:
        return ShareGroupDescribeRequest(
            group_ids=list(groups), include_authorized_operations=False
        )

    def read(response: Message) -> dict[str, GroupDescription | ClientError]:
        assert isinstance(response, ShareGroupDescribeResponse)
        return {group.group_id: _group(group) for group in response.groups}

    return AdminCall(ApiKey.SHARE_GROUP_DESCRIBE, build, read)


def _group(group: DescribedGroup) -> GroupDescription | ClientError:
    if group.error_code:
        return broker_error(group.error_code, f"group {group.group_id}", group.error_message)
    members = tuple(
        GroupMember(
            member.member_id,
            None,
            member.client_id,
            member.client_host.removeprefix("/"),
            tuple(sorted(member.subscribed_topic_names)),
            tuple(
                TopicPartition(topic.topic_name, number)
                for topic in member.assignment.topic_partitions
                for number in topic.partitions
            ),
            epoch=member.member_epoch,
        )
        for member in group.members
    )
    return GroupDescription(
        group.group_id,
        "share",
        group.group_state,
        "share",
        group.assignor_name,
        members,
        group.group_epoch,
    )


def describe_share_offsets(groups: Sequence[str]) -> AdminCall[dict[str, Offsets | ClientError]]:
    """Describe the offsets of share groups in all their partitions."""

    def build(_version: int) -> Message:
        return DescribeShareGroupOffsetsRequest(
            groups=[
                DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None) for name in groups
            ]
        )

    def read(response: Message) -> dict[str, Offsets | ClientError]:
        assert isinstance(response, DescribeShareGroupOffsetsResponse)
        return {group.group_id: _offsets(group) for group in response.groups}

    return AdminCall(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, build, read)


def _offsets(group: DescribeShareGroupOffsetsResponseGroup) -> Offsets | ClientError:
    if group.error_code:
        subject = f"offsets of share group {group.group_id}"
        return broker_error(group.error_code, subject, group.error_message)
    found: Offsets = {}
    for topic in group.topics:
        for each in topic.partitions:
            tp = TopicPartition(topic.topic_name, each.partition_index)
            found[tp] = ShareOffset(each.start_offset, each.leader_epoch, each.lag)
            if each.error_code:
                found[tp] = broker_error(each.error_code, f"offset of {tp}", each.error_message)
    return found


def alter_share_offsets(
    group: str, offsets: Mapping[TopicPartition, int]
) -> AdminCall[dict[TopicPartition, BrokerError | None]]:
    """Set start offsets of a share group without members; an error or None for each partition."""

    def build(_version: int) -> Message:
        entries = by_topic(
            (
                tp,
                AlterShareGroupOffsetsRequestPartition(
                    partition_index=tp.partition, start_offset=offset
                ),
            )
            for tp, offset in offsets.items()
        )
        return AlterShareGroupOffsetsRequest(
            group_id=group,
            topics=[
                AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=found)
                for name, found in entries.items()
            ],
        )

    def read(response: Message) -> dict[TopicPartition, BrokerError | None]:
        assert isinstance(response, AlterShareGroupOffsetsResponse)
        subject = f"offsets of share group {group}"
        raise_error(response.error_code, subject, response.error_message)
        found: dict[TopicPartition, BrokerError | None] = {}
        for topic in response.responses:
            for each in topic.partitions:
                tp = TopicPartition(topic.topic_name, each.partition_index)
                code, text = each.error_code, each.error_message
                found[tp] = broker_error(code, f"offset of {tp}", text) if code else None
        return found

    return AdminCall(ApiKey.ALTER_SHARE_GROUP_OFFSETS, build, read)


def delete_share_offsets(
    group: str, topics: Sequence[str]
) -> AdminCall[dict[str, BrokerError | None]]:
    """Delete the offsets of topics in a share group without members; an error or None for each."""

    def build(_version: int) -> Message:
        return DeleteShareGroupOffsetsRequest(
            group_id=group,
            topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics],
        )

    def read(response: Message) -> dict[str, BrokerError | None]:
        assert isinstance(response, DeleteShareGroupOffsetsResponse)
        subject = f"offsets of share group {group}"
        raise_error(response.error_code, subject, response.error_message)
        found: dict[str, BrokerError | None] = {}
        for topic in response.responses:
            code, text = topic.error_code, topic.error_message
            found[topic.topic_name] = (
                broker_error(code, f"offsets of {topic.topic_name}", text) if code else None
            )
        return found

    return AdminCall(ApiKey.DELETE_SHARE_GROUP_OFFSETS, build, read)
