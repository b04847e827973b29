"""Requests of about 500 KB with as many items as fit, and floods of small requests."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.codec import encode_request
from barnabas.protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from barnabas.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from barnabas.protocol.messages.connection import ApiVersionsRequest
from barnabas.protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
)
from barnabas.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.messages.log_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata import (
    DescribeTopicPartitionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from barnabas.protocol.messages.security import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from barnabas.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from loop_turns import loop_turns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.protocol.schema import Message
    from barnabas.testing.broker_process import BrokerProcess

_TIMEOUT_MS = 120_000
_LATEST = -1


class LargeRequest(NamedTuple):
    """A request, and the number of copies in one write."""

    message: Message
    version: int
    times: int = 1


def large_requests() -> dict[str, LargeRequest]:
    """Return all requests by description. Topic "t" must exist, with one partition."""
    names = [f"name-{number:05}" for number in range(40_000)]
    same = ["g"] * 200_000
    return {
        "a flood of ApiVersions": LargeRequest(ApiVersionsRequest(), 0, 10_000),
        "a flood of Metadata": LargeRequest(MetadataRequest(topics=[]), 1, 10_000),
        "metadata of unknown topics": LargeRequest(_metadata(names), 9),
        "metadata of one topic, many times": LargeRequest(_metadata(same), 9),
        "offsets of one partition, many times": LargeRequest(_offsets(), 6),
        "coordinators of many groups": LargeRequest(
            FindCoordinatorRequest(key_type=0, coordinator_keys=names), 4
        ),
        "groups that do not exist": LargeRequest(DescribeGroupsRequest(groups=names), 5),
        "one group, many times": LargeRequest(DescribeGroupsRequest(groups=same), 5),
        "configs of one broker, many times": LargeRequest(_configs(), 4),
        "unknown topics with a cursor's limit": LargeRequest(
            DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in names]), 0
        ),
        "offsets of many groups": LargeRequest(_group_offsets(names), 8),
        "a commit that no batch can hold": LargeRequest(_commit(), 6),
        "offsets to delete of unknown topics": LargeRequest(_deletion(names), 0),
        "groups to delete": LargeRequest(DeleteGroupsRequest(groups_names=names), 1),
        "moves to a directory that is not there": LargeRequest(_moves(), 1),
        "topics to delete that do not exist": LargeRequest(
            DeleteTopicsRequest(topic_names=names[:20_000], timeout_ms=_TIMEOUT_MS), 5
        ),
        "topics that are only checked": LargeRequest(_checked_topics(names[:3_000]), 5),
        "more topics than one request may create": LargeRequest(_checked_topics(names[:30_000]), 5),
        "users without credentials": LargeRequest(
            DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names]), 0
        ),
        "a member with many protocols": LargeRequest(_join(names), 3),
        "a member with 90 MB of metadata": LargeRequest(_join(["range"], 90 << 20), 9),
        "topic names of 32 KB": LargeRequest(_subscription(), 1),
        "many members that leave": LargeRequest(
            LeaveGroupRequest(
                group_id="g", members=[MemberIdentity(member_id=name) for name in names]
            ),
            4,
        ),
    }


def send(bootstrap: str, request: LargeRequest) -> int:
    """Send a request on a new connection, and return the size of the responses in bytes."""
    host, _, port = bootstrap.rpartition(":")
    frame = b"".join(
        bytes(chunk)
        for chunk in encode_request(1, "large", request.message, request.version)
        if isinstance(chunk, bytes | bytearray | memoryview)
    )
    received = 0
    with socket.create_connection((host, int(port)), _TIMEOUT_MS / 1000) as connection:
        connection.sendall(frame * request.times)
        stream = connection.makefile("rb")
        for _ in range(request.times):
            (size,) = struct.unpack(">i", stream.read(4))
            received += len(stream.read(size))
    return received


def blocking(broker: BrokerProcess, requests: Mapping[str, LargeRequest]) -> list[str]:
    """Send the requests, and describe those during which a turn of the event loop took too long."""
    held = []
    for name, request in requests.items():
        before = loop_turns(broker.metrics_address)
        assert send(broker.bootstrap, request) > 0, name
        after = loop_turns(broker.metrics_address)
        if after.long_cpu_turns > before.long_cpu_turns:
            held.append(f"{name}: {after.longest_cpu_ms:.0f} ms")
    return held


def _metadata(names: list[str]) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def _offsets() -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=_LATEST)] * 30_000
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=partitions)]
    )


def _configs() -> DescribeConfigsRequest:
    broker = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    return DescribeConfigsRequest(resources=[broker] * 500, include_synonyms=True)


def _group_offsets(names: list[str]) -> OffsetFetchRequest:
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
    )


def _commit() -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition] * 30_000)
    return OffsetCommitRequest(group_id="g", topics=[topic])


def _deletion(names: list[str]) -> OffsetDeleteRequest:
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    return OffsetDeleteRequest(
        group_id="g",
        topics=[OffsetDeleteRequestTopic(name=name, partitions=partitions) for name in names],
    )


def _moves() -> AlterReplicaLogDirsRequest:
    topic = AlterReplicaLogDirTopic(name="t", partitions=list(range(100_000)))
    directory = AlterReplicaLogDir(path="/nowhere", topics=[topic])
    return AlterReplicaLogDirsRequest(dirs=[directory])


def _subscription() -> ConsumerGroupHeartbeatRequest:
    # As many as one request of a member may have.
    names = [f"{number:032000}" for number in range(500)]
    return ConsumerGroupHeartbeatRequest(
        group_id="h",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=names,
        topic_partitions=[],
    )


def _join(names: list[str], metadata_bytes: int = 0) -> JoinGroupRequest:
    metadata = bytes(metadata_bytes)
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in names],
    )


def _checked_topics(names: list[str]) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
            for name in names
        ],
        timeout_ms=_TIMEOUT_MS,
        validate_only=True,
    )
