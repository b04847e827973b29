"""Progress of groups: offset, end offset, lag and assigned member per partition.

The offset of a share group is the start offset of its share partition: all records before it are
processed. Several members may read the partition. Streams groups also have a topology and tasks
(KIP-1071).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.cli.common.tables import dim, echo_line, echo_table, warn
from barnabas.client.errors import BrokerError, ClientError
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.admin.group_descriptions import (
        GroupDescription,
        GroupMember,
        StreamsGroupDescription,
        StreamsMember,
        StreamsTasks,
        Task,
    )
    from barnabas.client.admin.share_groups import ShareOffset
    from barnabas.client.admin.topics import TopicState
    from barnabas.client.facade import Client
    from barnabas.client.group.group_offsets import CommittedOffset
    from barnabas.client.topic_partition import TopicPartition


# Groups whose committed offsets are requested at once.
_GROUPS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """The progress of a group in one partition."""

    partition: TopicPartition
    # The next offset to read (the committed offset), or the start offset of a share partition;
    # None if there is none yet.
    offset: int | None
    # Log end offset; None if the partition does not exist or has no leader.
    end: int | None
    metadata: str
    # The member to which the partition is assigned; None without a member, and if a share
    # partition has several.
    member: GroupMember | None
    # Lag of a share partition as the coordinator reports it: records after the start offset that
    # are processed already do not count. None for other groups.
    reported_lag: int | None = None

    @property
    def lag(self) -> int | None:
        """Number of records that the group has not read; None if it is unknown."""
        if self.reported_lag is not None:
            return self.reported_lag
        if self.offset is None or self.end is None:
            return None
        return max(0, self.end - self.offset)


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """A group, its state, and its partitions in order."""

    description: GroupDescription
    coordinator: int | None
    partitions: tuple[PartitionProgress, ...]
    # The topology and tasks of a streams group; None for other groups.
    streams: StreamsGroupDescription | None = None

    @property
    def lag(self) -> int:
        """The sum over all partitions with a known lag."""
        return sum(each.lag or 0 for each in self.partitions)


def group_progress(client: Client, names: Sequence[str]) -> dict[str, GroupProgress | ClientError]:
    """Return the progress of each group, or the error with which describing it failed."""
    descriptions = client.admin.describe_groups(names)
    coordinators = client.admin.coordinators(names)
    found: dict[str, GroupProgress | ClientError] = {
        name: each for name, each in descriptions.items() if isinstance(each, ClientError)
    }
    committed: dict[str, Mapping[TopicPartition, CommittedOffset]] = {}
    for name, each in _committed(client, descriptions).items():
        if isinstance(each, ClientError):
            found[name] = each
        else:
            committed[name] = each
    shares = _share_offsets(client, descriptions)
    streams = _streams(client, descriptions)
    read = [tp for each in (*committed.values(), *shares.values()) for tp in each]
    ends = _ends(client, read, descriptions)
    for name, offsets in committed.items():
        description = descriptions[name]
        assert not isinstance(description, ClientError)
        node = coordinators[name]
        found[name] = GroupProgress(
            description,
            node if isinstance(node, int) else None,
            tuple(
                _share_partitions(description, shares.get(name, {}), ends)
                if description.type == "share"
                else _partitions(description, offsets, ends)
            ),
            streams.get(name),
        )
    return {name: found[name] for name in names}


def _committed(
    client: Client, descriptions: Mapping[str, GroupDescription | ClientError]
) -> dict[str, Mapping[TopicPartition, CommittedOffset] | ClientError]:
    """Return the committed offsets of the described groups; share groups have none."""
    described = {
        name: each for name, each in descriptions.items() if not isinstance(each, ClientError)
    }
    found: dict[str, Mapping[TopicPartition, CommittedOffset] | ClientError] = {
        name: {} for name in described
    }
    others = [name for name, each in described.items() if each.type != "share"]
    for first in range(0, len(others), _GROUPS_AT_ONCE):
        found |= client.admin.list_group_offsets(others[first : first + _GROUPS_AT_ONCE])
    return found


def group_positions(client: Client, group: GroupDescription) -> dict[TopicPartition, int]:
    """Return the committed offsets of a group, or the start offsets of a share group."""
    if group.type != "share":
        return {tp: found.offset for tp, found in client.committed(group.group_id).items()}
    found = _share_offsets(client, {group.group_id: group}).get(group.group_id, {})
    return {tp: each.start_offset for tp, each in found.items() if each.start_offset >= 0}


def _streams(
    client: Client, descriptions: Mapping[str, GroupDescription | ClientError]
) -> dict[str, StreamsGroupDescription]:
    """Return the topology and tasks of the streams groups."""
    names = [
        name
        for name, each in descriptions.items()
        if not isinstance(each, ClientError) and each.type == "streams"
    ]
    if not names:
        return {}
    found = client.admin.describe_streams_groups(names)
    return {name: each for name, each in found.items() if not isinstance(each, ClientError)}


def _share_offsets(
    client: Client, descriptions: Mapping[str, GroupDescription | ClientError]
) -> dict[str, dict[TopicPartition, ShareOffset]]:
    """Return the start offsets of the share groups; partitions with errors are left out."""
    names = [
        name
        for name, each in descriptions.items()
        if not isinstance(each, ClientError) and each.type == "share"
    ]
    if not names:
        return {}
    found = client.admin.describe_share_group_offsets(names)
    return {
        name: {tp: each for tp, each in offsets.items() if not isinstance(each, ClientError)}
        for name, offsets in found.items()
        if not isinstance(offsets, ClientError)
    }


def _share_partitions(
    description: GroupDescription,
    offsets: Mapping[TopicPartition, ShareOffset],
    ends: Mapping[TopicPartition, int],
) -> Iterable[PartitionProgress]:
    readers: dict[TopicPartition, list[GroupMember]] = {}
    for each in description.members:
        for tp in each.assignment:
            readers.setdefault(tp, []).append(each)
    for tp in sorted({*offsets, *readers}):
        found = offsets.get(tp)
        members = readers.get(tp, [])
        start = found.start_offset if found is not None and found.start_offset >= 0 else None
        lag = found.lag if found is not None and found.lag >= 0 else None
        member = members[0] if len(members) == 1 else None
        yield PartitionProgress(tp, start, ends.get(tp), "", member, lag)


def _partitions(
    description: GroupDescription,
    offsets: Mapping[TopicPartition, CommittedOffset],
    ends: Mapping[TopicPartition, int],
) -> Iterable[PartitionProgress]:
    readers = {tp: member for member in description.members for tp in member.assignment}
    if description.type == "streams":
        # A task has no partition in those of its topics that have fewer partitions.
        readers = {tp: member for tp, member in readers.items() if tp in ends or tp in offsets}
    for tp in sorted({*offsets, *readers}):
        offset = offsets.get(tp)
        yield PartitionProgress(
            tp,
            None if offset is None else offset.offset,
            ends.get(tp),
            "" if offset is None else offset.metadata,
            readers.get(tp),
        )


def _ends(
    client: Client,
    committed: Sequence[TopicPartition],
    descriptions: Mapping[str, GroupDescription | ClientError],
) -> dict[TopicPartition, int]:
    """Return the end offsets of all partitions that exist and have a leader."""
    wanted = set(committed)
    for description in descriptions.values():
        if not isinstance(description, ClientError):
            wanted.update(tp for member in description.members for tp in member.assignment)
    if not wanted:
        return {}
    # A cluster may have many more topics than the groups read.
    topics = client.admin.describe_topic_partitions(sorted({tp.topic for tp in wanted}))
    led = [tp for tp in sorted(wanted) if _has_leader(topics.get(tp.topic), tp.partition)]
    return end_offsets(client, led)


def _has_leader(topic: TopicState | ClientError | None, number: int) -> bool:
    """Return whether a partition exists and has a leader."""
    if topic is None or isinstance(topic, ClientError) or number not in topic.partitions:
        return False
    return topic.partitions[number].leader >= 0


def known_offsets(
    client: Client, partitions: Iterable[TopicPartition], place: str
) -> dict[TopicPartition, int]:
    """Return the offsets of a place such as "latest"; partitions with an error are left out."""
    found = client.admin.list_offsets(dict.fromkeys(partitions, place))
    return {tp: each.offset for tp, each in found.items() if not isinstance(each, ClientError)}


def end_offsets(client: Client, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the end offsets of partitions, without those of topics that were deleted meanwhile."""
    specs = dict.fromkeys(partitions, "latest")
    try:
        found = client.list_offsets(specs)
    except BrokerError as error:
        if error.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        gone = {
            tp
            for tp, each in client.admin.list_offsets(specs).items()
            if isinstance(each, BrokerError) and each.error_code == error.error_code
        }
        found = client.list_offsets({tp: spec for tp, spec in specs.items() if tp not in gone})
    return {tp: each.offset for tp, each in found.items()}


def echo_topology(group: StreamsGroupDescription) -> None:
    """Print the epochs of a streams group, and its subtopologies with their topics."""
    if group.topology_epoch < 0:
        echo_line("topology ", dim(None))
        return
    echo_line(
        f"topology epoch {group.topology_epoch}, group epoch {group.epoch}, assignment epoch ",
        _epoch(group.assignment_epoch, group.epoch),
    )
    rows = [
        (
            each.id,
            " ".join(each.inputs) or dim(None),
            " ".join(each.repartition_sink_topics) or dim(None),
            " ".join(each.changelog_topics) or dim(None),
        )
        for each in group.subtopologies
    ]
    if rows:
        echo_table(("subtopology", "reads", "repartitions to", "changelogs"), rows)


def echo_streams_members(group: StreamsGroupDescription) -> None:
    """Print the members of a streams group with their tasks."""
    rows = [
        (
            _name(member),
            member.process_id,
            member.client_id,
            member.host,
            _epoch(member.epoch, group.epoch),
            _tasks(member.assignment.active),
            _tasks(member.assignment.standby),
            _tasks(member.assignment.warmup),
            dim(None) if _same(member) else warn(_tasks(member.target.active)),
        )
        for member in group.members
    ]
    echo_table(
        ("member", "process", "client", "host", "epoch", "active", "standby", "warm-up", "target"),
        rows,
    )


def streams_json(group: StreamsGroupDescription) -> dict[str, Any]:
    """Return the topology and the tasks for JSON."""
    return {
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "topology_epoch": group.topology_epoch,
        "subtopologies": [
            {
                "subtopology": each.id,
                "source_topics": list(each.source_topics),
                "repartition_source_topics": list(each.repartition_source_topics),
                "repartition_sink_topics": list(each.repartition_sink_topics),
                "changelog_topics": list(each.changelog_topics),
            }
            for each in group.subtopologies
        ],
        "members": [
            {
                "member": member.member_id,
                "process": member.process_id,
                "epoch": member.epoch,
                "topology_epoch": member.topology_epoch,
                "tasks": _tasks_json(member.assignment),
                "target": _tasks_json(member.target),
            }
            for member in group.members
        ],
    }


def _tasks_json(tasks: StreamsTasks) -> dict[str, list[dict[str, Any]]]:
    return {
        role: [{"subtopology": each, "partition": number} for each, number in listed]
        for role, listed in (
            ("active", tasks.active),
            ("standby", tasks.standby),
            ("warmup", tasks.warmup),
        )
    }


def _epoch(epoch: int, current: int) -> object:
    """Return an epoch, marked if it is behind."""
    return epoch if epoch == current else warn(epoch)


def _same(member: StreamsMember) -> bool:
    return set(member.assignment.active) == set(member.target.active)


def _name(member: StreamsMember) -> str:
    if member.instance_id:
        return f"{member.instance_id} ({member.member_id})"
    return member.member_id


def _tasks(tasks: Iterable[Task]) -> object:
    """Return tasks as words: `0:1,2 1:0` for tasks 0_1, 0_2 and 1_0."""
    numbers: dict[str, list[int]] = {}
    for subtopology, number in sorted(tasks):
        numbers.setdefault(subtopology, []).append(number)
    words = [f"{each}:{','.join(map(str, own))}" for each, own in numbers.items()]
    return " ".join(words) or None
