"""The share groups of a shard with their members and topics (Kafka: ShareGroup).

A topic has state at the share coordinators (ShareGroup.ShareGroupStatePartitionMetadataInfo). A
partition is assigned to members after its state is initialized.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

import msgspec

from barnabas.coordinator.group.group_base import GroupMember
from barnabas.coordinator.group.group_kind import KindShard
from barnabas.coordinator.group.replayed_group import NO_EPOCH, ReplayedGroup, change_counts
from barnabas.coordinator.group.topics import NOTHING, Target

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.coordinator.group.group_base import GroupMemory
    from barnabas.coordinator.group.group_config import GroupSettings
    from barnabas.coordinator.group.group_kind import GroupDependencies


class ShareGroupState(Enum):
    """The state of a share group; the value is Kafka's name."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


class ShareMember(GroupMember, frozen=True):
    """A member of a share group.

    Partitions are shared, so a member needs no reconciliation: it gets its target at once.
    """

    subscribed_topic_names: frozenset[str] = frozenset()
    # Partitions from which the client may fetch.
    assigned: Target = NOTHING


class StateTopic(msgspec.Struct, frozen=True):
    """Partitions of one topic."""

    name: str
    partitions: frozenset[int]
    # Time (wall clock in ms) at which their record was replayed.
    timestamp: int


# Partitions by topic id.
StateTopicsById = Mapping[bytes, StateTopic]

_NO_TOPICS: StateTopicsById = MappingProxyType({})


class StateTopics(msgspec.Struct, frozen=True):
    """The topics of a group whose partitions have state, or whose state is created or deleted."""

    # Topics whose initialization was requested.
    initializing: StateTopicsById = _NO_TOPICS
    # Topics whose partitions may be assigned.
    initialized: StateTopicsById = _NO_TOPICS
    # Ids of topics whose state is being deleted.
    deleting: frozenset[bytes] = frozenset()

    def topic_ids(self) -> set[bytes]:
        """Return the ids of all topics that are initialized or initializing."""
        return self.initializing.keys() | self.initialized.keys()

    def without(self, topic_ids: frozenset[bytes]) -> StateTopics:
        """Return the topics without `topic_ids`, which no longer exist."""
        return StateTopics(
            _without(self.initializing, topic_ids),
            _without(self.initialized, topic_ids),
            self.deleting - topic_ids,
        )


NO_STATE_TOPICS = StateTopics()


def merge(first: StateTopicsById, second: StateTopicsById) -> dict[bytes, StateTopic]:
    """Return the topics of both with all of their partitions. Name and time are the second's."""
    merged = dict(first)
    for topic_id, topic in second.items():
        known = first.get(topic_id)
        partitions = topic.partitions if known is None else topic.partitions | known.partitions
        merged[topic_id] = StateTopic(topic.name, partitions, topic.timestamp)
    return merged


def subtract(
    topics: StateTopicsById, partitions: Mapping[bytes, frozenset[int]]
) -> dict[bytes, StateTopic]:
    """Return the topics without some partitions. Topics without partitions are left out."""
    found: dict[bytes, StateTopic] = {}
    for topic_id, topic in topics.items():
        if topic_id not in partitions:
            found[topic_id] = topic
            continue
        kept = topic.partitions - partitions[topic_id]
        if kept:
            found[topic_id] = StateTopic(topic.name, kept, topic.timestamp)
    return found


def _without(topics: StateTopicsById, topic_ids: frozenset[bytes]) -> StateTopicsById:
    return {each: topic for each, topic in topics.items() if each not in topic_ids}


# Estimated overhead of a member, of each of its topics and of each partition, in bytes.
_MEMBER_BYTES = 1_000
_TOPIC_BYTES = 100
_PARTITION_BYTES = 100


class ShareGroup(ReplayedGroup[ShareMember, Target]):
    """Members, epochs, target assignment and topics with state of a group.

    A partition may be in the targets of several members.
    """

    kind: ClassVar[str] = "share"
    commits_offsets: ClassVar[bool] = False

    __slots__ = (
        "_complete",
        "_names",
        "_unassigned",
        "state_topics",
    )

    def __init__(self, group_id: str, memory: GroupMemory) -> None:
        super().__init__(group_id, memory)
        # Topics whose partitions have state. None until the first record of them.
        self.state_topics: StateTopics | None = None
        # Subscribed members by topic name. No count is 0.
        self._names: dict[str, int] = {}
        # Group epoch and topics for which no partition of the subscribed topics lacks state.
        self._complete: tuple[int, StateTopics | None] = (NO_EPOCH, None)
        # The last result of `has_unassigned_state`: epochs and topics that it belongs to, and the
        # result.
        self._unassigned: tuple[tuple[int, int], StateTopics | None, bool] = ((0, 0), None, False)

    @property
    def state(self) -> ShareGroupState:
        """STABLE with members, EMPTY without."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def is_settled(self, member: ShareMember) -> bool:
        """Whether a heartbeat that reports no change leaves the group and `member` as they are."""
        return (
            member.member_epoch == self.assignment_epoch >= self.group_epoch >= self.compared_epoch
            and self.has_all_state()
            and not self.has_unassigned_state()
        )

    # Subscriptions.

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to the topic."""
        return topic in self._names

    def subscribed_names(self) -> set[str]:
        """Return the names of all topics to which members subscribe."""
        return set(self._names)

    def subscribed_names_with(
        self, before: ShareMember | None, after: ShareMember | None
    ) -> set[str]:
        """Return the subscribed names if one member changes, joins or leaves.

        Args:
            before: the member as it is, or None for a new one.
            after: the member as it will be, or None if it leaves.
        """
        names = dict(self._names)
        if before is not None:
            change_counts(names, before.subscribed_topic_names, -1)
        if after is not None:
            change_counts(names, after.subscribed_topic_names, 1)
        return set(names)

    def has_unassigned_state(self) -> bool:
        """Whether initialized partitions of a subscribed topic are not in the target assignment."""
        if self.state_topics is None or not self.members:
            return False
        # Targets and subscriptions change with one of the epochs.
        epochs, topics, found = self._unassigned
        if epochs != (self.group_epoch, self.assignment_epoch) or topics is not self.state_topics:
            epochs, found = (self.group_epoch, self.assignment_epoch), self._find_unassigned()
            self._unassigned = (epochs, self.state_topics, found)
        return found

    def _find_unassigned(self) -> bool:
        topics = NO_STATE_TOPICS if self.state_topics is None else self.state_topics
        assigned: dict[bytes, set[int]] = {}
        for target in self.targets.values():
            for topic_id, indexes in target.items():
                assigned.setdefault(topic_id, set()).update(indexes)
        return any(
            topic.name in self._names and assigned.get(topic_id, set()) ^ topic.partitions
            for topic_id, topic in topics.initialized.items()
        )

    def has_all_state(self) -> bool:
        """Whether it is known that no partition of the subscribed topics lacks state."""
        epoch, topics = self._complete
        return epoch == self.group_epoch and topics is self.state_topics

    def note_all_state(self) -> None:
        """Note that no partition lacks state until the subscriptions or the topics change."""
        # Both raise the group epoch.
        self._complete = (self.group_epoch, self.state_topics)

    # Replay.

    def put(self, member: ShareMember) -> None:
        """Add or replace a member."""
        before = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if before is not None:
            if before.subscribed_topic_names is member.subscribed_topic_names:
                # Epochs and partitions have changed.
                growth = _partitions_of(member) - _partitions_of(before)
                self._resize(growth * _PARTITION_BYTES)
                return
            self._forget(before)
        change_counts(self._names, member.subscribed_topic_names, 1)
        self._resize(_bytes_of(member))

    def remove(self, member_id: str) -> None:
        """Remove a member. Another record removes its target assignment."""
        self._forget(self.members.pop(member_id, None))

    def _forget(self, member: ShareMember | None) -> None:
        if member is not None:
            change_counts(self._names, member.subscribed_topic_names, -1)
            self._resize(-_bytes_of(member))

    def target_of(self, member_id: str) -> Target:
        """Return the target assignment of a member."""
        return self.targets.get(member_id, NOTHING)

    # Memory.

    def growth_by(self, member: ShareMember) -> int:
        """Return by how many bytes the group grows if the member gets this state."""
        known = self.members.get(member.member_id)
        return _bytes_of(member) - (0 if known is None else _bytes_of(known))


def _bytes_of(member: ShareMember) -> int:
    """Return the estimated memory size of a member and of its target assignment, in bytes."""
    names = sum(len(name) + _TOPIC_BYTES for name in member.subscribed_topic_names)
    partitions = _partitions_of(member) * _PARTITION_BYTES
    return _MEMBER_BYTES + names + len(member.member_id) + partitions


def _partitions_of(member: ShareMember) -> int:
    count = 0
    for indexes in member.assigned.values():
        count += len(indexes)
    return count


# The name that Kafka writes for topic ids that no longer exist.
_UNKNOWN_NAME = "<UNKNOWN>"


class ShareShard(KindShard[ShareGroup]):
    """The share groups of one shard."""

    replaces_classic: ClassVar[bool] = False

    __slots__ = ("_write_timeout_ms",)

    def __init__(
        self,
        settings: GroupSettings,
        dependencies: GroupDependencies,
        write_timeout_ms: int,
    ) -> None:
        super().__init__(ShareGroup, settings, dependencies)
        # offsets.commit.timeout.ms.
        self._write_timeout_ms = write_timeout_ms

    # Configuration.

    @property
    def initialize_retry_ms(self) -> int:
        """Time after which an initialization without a result is repeated."""
        return max(
            self.config.integer("group.share.initialize.retry.interval.ms"), self._write_timeout_ms
        )

    # Topics.

    def names_of(self, topic_ids: Iterable[bytes]) -> dict[bytes, str]:
        """Return the names of topics; Kafka's placeholder for topics that do not exist."""
        return {each: self.topics.topic_name(each) or _UNKNOWN_NAME for each in topic_ids}
