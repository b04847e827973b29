"""Share groups: describe them, read and change their offsets, and read stored states (KIP-932).

Share coordinators answer ReadShareGroupState for brokers, and for users with the right
CLUSTER_ACTION. They store the state of a record when a delivery of it ends. Which member has a
record now is known to the leader of the partition only. Lag of share groups: KIP-1226.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from barnabas.client.admin.sender import (
    AdminCall,
    CoordinatorOf,
    checked,
    each_partition,
    fixed_call,
    names_of,
    raise_error,
)
from barnabas.client.admin.topics import describe_topic_partitions
from barnabas.client.connections.lookups import SHARE
from barnabas.client.errors import (
    BrokerError,
    ClientError,
    UnknownTopicError,
    broker_error,
    error_or_none,
)
from barnabas.client.topic_partition import K, TopicPartition, as_partitions, by_partition, by_topic
from barnabas.protocol.messages import (
    read_share_group_state as state,
    read_share_group_state_summary as summary,
)
from barnabas.protocol.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from barnabas.protocol.primitives import uuid_to_string

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from barnabas.client.admin.sender import AdminSender, Plan


__all__ = ["ShareOffset", "ShareRecordState", "ShareState", "ShareStateBatch"]

Offsets = dict[TopicPartition, "ShareOffset | ClientError"]


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """The start offset of a share group in one partition."""

    start_offset: int
    leader_epoch: int
    # Number of records not yet delivered; -1 if the broker does not send it.
    lag: int


def describe_share_group_offsets(
    sender: AdminSender, names: Iterable[str]
) -> Plan[dict[str, Offsets | ClientError]]:
    """Describe the offsets of share groups, by group and partition."""

    def call_for(groups: list[str]) -> AdminCall[dict[str, Offsets | ClientError]]:
        def read(
            response: DescribeShareGroupOffsetsResponse,
        ) -> dict[str, Offsets | ClientError]:
            return {group.group_id: _offsets(group) for group in response.groups}

        wanted = [
            DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None) for name in groups
        ]
        return fixed_call(DescribeShareGroupOffsetsRequest(groups=wanted), read)

    return sender.send_to_coordinators(names_of(names), call_for)


def _offsets(group: DescribeShareGroupOffsetsResponseGroup) -> Offsets | ClientError:
    if group.error_code:
        subject = f"offsets of share group {group.group_id}"
        return broker_error(group.error_code, subject, group.error_message)
    return {
        tp: error_or_none(each.error_code, f"offset of {tp}", each.error_message)
        or ShareOffset(each.start_offset, each.leader_epoch, each.lag)
        for tp, each in each_partition((t.topic_name, t.partitions) for t in group.topics)
    }


def alter_share_group_offsets(
    sender: AdminSender, group: str, offsets: Mapping[K, int], *, raise_errors: bool = True
) -> Plan[dict[TopicPartition, BrokerError | None]]:
    """Set the start offsets of a share group without members.

    Returns:
        An error or None for each partition.

    Raises:
        AdminResultsError: a partition failed; not raised with `raise_errors=False`.
    """
    entries = by_topic(
        (
            tp,
            AlterShareGroupOffsetsRequestPartition(
                partition_index=tp.partition, start_offset=offset
            ),
        )
        for tp, offset in by_partition(offsets).items()
    )
    request = AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=found)
            for name, found in entries.items()
        ],
    )

    def read(response: AlterShareGroupOffsetsResponse) -> dict[TopicPartition, BrokerError | None]:
        subject = f"offsets of share group {group}"
        raise_error(response.error_code, subject, response.error_message)
        return {
            tp: error_or_none(each.error_code, f"offset of {tp}", each.error_message)
            for tp, each in each_partition((t.topic_name, t.partitions) for t in response.responses)
        }

    call = fixed_call(request, read)
    return checked(sender.send(CoordinatorOf(group), call), raise_errors=raise_errors)


def delete_share_group_offsets(
    sender: AdminSender, group: str, topics: Sequence[str], *, raise_errors: bool = True
) -> Plan[dict[str, BrokerError | None]]:
    """Delete the offsets of topics in a share group without members.

    Returns:
        An error or None for each topic.

    Raises:
        AdminResultsError: a topic failed; not raised with `raise_errors=False`.
    """
    request = DeleteShareGroupOffsetsRequest(
        group_id=group,
        topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names_of(topics)],
    )

    def read(response: DeleteShareGroupOffsetsResponse) -> dict[str, BrokerError | None]:
        subject = f"offsets of share group {group}"
        raise_error(response.error_code, subject, response.error_message)
        return {
            (name := t.topic_name): error_or_none(
                t.error_code, f"offsets of {name}", t.error_message
            )
            for t in response.responses
        }

    call = fixed_call(request, read)
    return checked(sender.send(CoordinatorOf(group), call), raise_errors=raise_errors)


class ShareRecordState(IntEnum):
    """The stored state of a record."""

    # The record is delivered again; a member may have it at this moment.
    AVAILABLE = 0
    ACKNOWLEDGED = 2
    # The group has given the record up, and its dead letter is being written (KIP-1191).
    ARCHIVING = 3
    # The record was rejected, or its deliveries have reached the limit.
    ARCHIVED = 4


@dataclass(frozen=True, slots=True)
class ShareStateBatch:
    """Records with one state. Both offsets are inclusive."""

    first_offset: int
    last_offset: int
    # A value of ShareRecordState, or one that this client does not know.
    delivery_state: int
    # Number of deliveries that have ended.
    delivery_count: int

    @property
    def count(self) -> int:
        """Number of offsets."""
        return self.last_offset - self.first_offset + 1


@dataclass(frozen=True, slots=True)
class ShareSummary:
    """The offsets of a share partition, without its batches."""

    # All records before it are processed; -1 if no member has fetched from the partition yet.
    start_offset: int
    # The leader epoch of the leader that has read the state last.
    leader_epoch: int
    # Number of processed records from the start offset on; -1 if the broker does not send it.
    delivery_complete_count: int


@dataclass(frozen=True, slots=True)
class ShareState:
    """The stored state of a share partition.

    Records from the start offset on that are in no batch were not delivered yet, or were acquired
    by a member for the first time.
    """

    start_offset: int
    delivery_complete_count: int
    batches: tuple[ShareStateBatch, ...]


@dataclass(frozen=True, slots=True)
class ShareKey:
    """A share partition: a group and a partition of a topic."""

    group: str
    partition: TopicPartition
    topic_id: bytes

    @property
    def coordinator_key(self) -> str:
        """The key by which FindCoordinator finds the share coordinator."""
        return f"{self.group}:{uuid_to_string(self.topic_id)}:{self.partition.partition}"


def read_summaries(keys: Sequence[ShareKey]) -> AdminCall[dict[str, ShareSummary | ClientError]]:
    """Read the offsets of share partitions of one group, by coordinator key."""
    request = summary.ReadShareGroupStateSummaryRequest(
        group_id=keys[0].group,
        topics=[
            summary.ReadStateSummaryData(
                topic_id=each.topic_id,
                partitions=[
                    summary.PartitionData(partition=each.partition.partition, leader_epoch=0)
                ],
            )
            for each in keys
        ],
    )

    def read(
        response: summary.ReadShareGroupStateSummaryResponse,
    ) -> dict[str, ShareSummary | ClientError]:
        return {
            key.coordinator_key: _error(key, each)
            or ShareSummary(each.start_offset, each.leader_epoch, each.delivery_complete_count)
            for key, each in _results_of(keys, response.results)
        }

    return fixed_call(request, read)


def read_states(
    wanted: Sequence[tuple[ShareKey, ShareSummary]],
) -> AdminCall[dict[str, ShareState | ClientError]]:
    """Read the states of share partitions of one group, by coordinator key.

    A coordinator stores a newer leader epoch than the one it has. The epoch of the summary changes
    nothing; if a leader has read the state since, the result is FENCED_LEADER_EPOCH.
    """
    request = state.ReadShareGroupStateRequest(
        group_id=wanted[0][0].group,
        topics=[
            state.ReadStateData(
                topic_id=key.topic_id,
                partitions=[
                    state.PartitionData(
                        partition=key.partition.partition, leader_epoch=each.leader_epoch
                    )
                ],
            )
            for key, each in wanted
        ],
    )

    def read(response: state.ReadShareGroupStateResponse) -> dict[str, ShareState | ClientError]:
        summaries = dict(wanted)
        return {
            key.coordinator_key: _error(key, each) or _state(each, summaries[key])
            for key, each in _results_of(summaries, response.results)
        }

    return fixed_call(request, read)


def _state(found: state.PartitionResult, offsets: ShareSummary) -> ShareState:
    return ShareState(
        found.start_offset,
        offsets.delivery_complete_count,
        tuple(
            ShareStateBatch(
                each.first_offset, each.last_offset, each.delivery_state, each.delivery_count
            )
            for each in found.state_batches
        ),
    )


def _results_of(keys: Iterable[ShareKey], topics: Iterable[Any]) -> Iterator[tuple[ShareKey, Any]]:
    """Iterate over the results of these share partitions in a response."""
    by_id = {(key.topic_id, key.partition.partition): key for key in keys}
    for topic in topics:
        for each in topic.partitions:
            key = by_id.get((topic.topic_id, each.partition))
            if key is not None:
                yield key, each


def _error(key: ShareKey, result: Any) -> ClientError | None:
    subject = f"state of {key.partition} in share group {key.group}"
    return error_or_none(result.error_code, subject, result.error_message)


def describe_share_group_states(
    sender: AdminSender, group: str, partitions: Iterable[tuple[str, int]]
) -> Plan[dict[TopicPartition, ShareState | ClientError]]:
    """Describe what share coordinators store about the records of a share group.

    This needs the right CLUSTER_ACTION on the cluster, and changes nothing.
    """
    wanted = as_partitions(partitions)
    keys, found = yield from _share_keys(sender, group, wanted)
    send = sender.send_to_coordinators
    summaries = yield from send(
        keys,
        lambda part: read_summaries([keys[each] for each in part]),
        key_type=SHARE,
    )
    offsets = {key: each for key, each in summaries.items() if isinstance(each, ShareSummary)}
    # A share partition whose start offset is unknown has no records, and perhaps no state.
    started = [key for key, each in offsets.items() if each.start_offset >= 0]
    states = yield from send(
        started,
        lambda part: read_states([(keys[each], offsets[each]) for each in part]),
        key_type=SHARE,
    )
    for name, key in keys.items():
        first = summaries[name]
        if isinstance(first, ClientError):
            found[key.partition] = first
        else:
            nothing = ShareState(first.start_offset, -1, ())
            found[key.partition] = states.get(name, nothing)
    return found


def _share_keys(
    sender: AdminSender, group: str, partitions: Sequence[TopicPartition]
) -> Plan[
    tuple[
        dict[str, ShareKey],
        dict[TopicPartition, ShareState | ClientError],
    ]
]:
    """Return the share partitions by coordinator key, and errors of topics that do not exist."""
    topics = {}
    if partitions:
        topics = yield from describe_topic_partitions(sender, {tp.topic for tp in partitions})
    keys = {}
    errors: dict[TopicPartition, ShareState | ClientError] = {}
    for tp in partitions:
        topic = topics.get(tp.topic) or UnknownTopicError(tp.topic)
        if isinstance(topic, ClientError):
            errors[tp] = topic
            continue
        key = ShareKey(group, tp, topic.topic_id)
        keys[key.coordinator_key] = key
    return keys, errors
