"""The state of one share group (Kafka: ShareGroup). It changes by the replay of records."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from barnabas.coordinator.group.assignment import NOTHING, Target
from barnabas.coordinator.group.share.share_group_state import ShareGroupState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.coordinator.group.classic.group_memory import GroupMemory
    from barnabas.coordinator.group.share.share_member import ShareMember
    from barnabas.coordinator.group.share.state_topics import StateTopics

# Estimated overhead of a member, of each of its topics and of each partition, in bytes.
_MEMBER_BYTES = 1_000
_TOPIC_BYTES = 100
_PARTITION_BYTES = 100

NO_EPOCH = -1
# Epoch of a group without records. The first member raises it.
FIRST_EPOCH = 1
# The next heartbeat compares the topics with the stored hash.
_REFRESH_NOW = (0, 0)


class ShareGroup:
    """Members, epochs, target assignment and topics with state of a group."""

    __slots__ = (
        "_names",
        "_refresh",
        "assignment_epoch",
        "assignment_timestamp",
        "group_epoch",
        "group_id",
        "held_bytes",
        "members",
        "memory",
        "metadata_hash",
        "state_topics",
        "targets",
    )

    def __init__(self, group_id: str, memory: GroupMemory) -> None:
        # Memory accounting of all groups of this broker, and the size of this group in bytes.
        self.memory = memory
        self.held_bytes = 0
        self.group_id = group_id
        # Increases when members, subscriptions, topics or initialized partitions change.
        self.group_epoch = FIRST_EPOCH
        # Hash of the subscribed topics at the last change of the group epoch.
        self.metadata_hash = 0
        # The group epoch for which `targets` was computed, and when (wall clock in ms, or 0).
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp = 0
        self.members: dict[str, ShareMember] = {}
        # Target assignment by member id. A partition may belong to several members.
        self.targets: dict[str, Target] = {}
        # Topics whose partitions have state. None until the first record of them.
        self.state_topics: StateTopics | None = None
        # Subscribed members by topic name. No count is 0.
        self._names: Counter[str] = Counter()
        # Time (wall clock in ms) and group epoch until which the hash of the topics is valid.
        self._refresh = _REFRESH_NOW

    @property
    def state(self) -> ShareGroupState:
        """STABLE with members, EMPTY without."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

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
        names = Counter(self._names)
        if before is not None:
            _count(names, before.subscribed_topic_names, -1)
        if after is not None:
            _count(names, after.subscribed_topic_names, 1)
        return set(names)

    def has_unassigned_state(self) -> bool:
        """Whether initialized partitions of a subscribed topic are not in the target assignment."""
        if self.state_topics is None or not self.members:
            return False
        assigned: dict[bytes, set[int]] = {}
        for target in self.targets.values():
            for topic_id, indexes in target.items():
                assigned.setdefault(topic_id, set()).update(indexes)
        return any(
            topic.name in self._names and assigned.get(topic_id, set()) ^ topic.partitions
            for topic_id, topic in self.state_topics.initialized.items()
        )

    # Validity of the hash of the subscribed topics.

    def request_refresh(self) -> None:
        """Compare the topics with the stored hash at the next heartbeat."""
        self._refresh = _REFRESH_NOW

    def note_refresh(self, until_ms: int, epoch: int) -> None:
        """Do not compare the topics until then, unless the group falls back to an older epoch."""
        self._refresh = (until_ms, epoch)

    def needs_refresh(self, now_ms: int) -> bool:
        """Whether the topics must be compared with the stored hash."""
        until_ms, epoch = self._refresh
        return now_ms >= until_ms or self.group_epoch < epoch

    # Replay.

    def put(self, member: ShareMember) -> None:
        """Add or replace a member."""
        self._forget(self.members.get(member.member_id))
        self.members[member.member_id] = member
        _count(self._names, member.subscribed_topic_names, 1)
        self._resize(_bytes_of(member))

    def remove(self, member_id: str) -> None:
        """Remove a member. Its target assignment has a record of its own."""
        self._forget(self.members.pop(member_id, None))

    def _forget(self, member: ShareMember | None) -> None:
        if member is not None:
            _count(self._names, member.subscribed_topic_names, -1)
            self._resize(-_bytes_of(member))

    def target_of(self, member_id: str) -> Target:
        """Return the target assignment of a member."""
        return self.targets.get(member_id, NOTHING)

    # Memory.

    def growth_by(self, member: ShareMember) -> int:
        """Return by how many bytes the group grows if the member gets this state."""
        known = self.members.get(member.member_id)
        return _bytes_of(member) - (0 if known is None else _bytes_of(known))

    def release_memory(self) -> None:
        """Release the memory of a group that is removed with its members."""
        self._resize(-self.held_bytes)

    def _resize(self, growth: int) -> None:
        self.held_bytes += growth
        self.memory.held_bytes += growth


def _bytes_of(member: ShareMember) -> int:
    """Return the estimated memory size of a member and of its target assignment, in bytes."""
    names = sum(len(name) + _TOPIC_BYTES for name in member.subscribed_topic_names)
    partitions = sum(map(len, member.assigned.values()))
    return _MEMBER_BYTES + names + len(member.member_id) + partitions * _PARTITION_BYTES


def _count(counts: Counter[str], names: Iterable[str], change: int) -> None:
    for name in names:
        counts[name] += change
        if counts[name] <= 0:
            del counts[name]
