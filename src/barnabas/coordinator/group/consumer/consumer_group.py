"""The state of a consumer group and of its members (Kafka: ConsumerGroup). Only replay changes it.

The state of the group follows from its epochs and its members. A group is DEAD once it is removed.
Otherwise the first row that applies counts:

| state | condition |
|---|---|
| EMPTY | the group has no members |
| ASSIGNING | the target assignment is older than the group epoch |
| RECONCILING | a member has not reached the target assignment |
| STABLE | all members have reached it |
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import TYPE_CHECKING, ClassVar

import msgspec

from barnabas.coordinator.group.classic.classic_group import CONSUMER_PROTOCOL_TYPE
from barnabas.coordinator.group.group_base import GroupMember, member_bytes
from barnabas.coordinator.group.replayed_group import NO_EPOCH, ReplayedGroup, change_counts
from barnabas.coordinator.group.topics import NOTHING, NOTHING_OWNED, Owned, Target

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from barnabas.coordinator.group.group_base import GroupMemory


class ConsumerGroupState(Enum):
    """The state of a consumer group. Values are the names in the protocol."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(IntEnum):
    """The state of a member. Values are those of its record."""

    # The member has received all partitions of the epoch that it has reached.
    STABLE = 0
    # The member must revoke partitions before it can advance to the next epoch.
    UNREVOKED_PARTITIONS = 1
    # The member waits for partitions that other members have not revoked yet.
    UNRELEASED_PARTITIONS = 2
    # A later version has written a state that this version does not know.
    UNKNOWN = 127

    @classmethod
    def of(cls, value: int) -> MemberState:
        """Return the state of a record. Unknown values become UNKNOWN."""
        return cls(value) if value in _VALUES else cls.UNKNOWN


_VALUES = frozenset(MemberState)


class ClassicMetadata(msgspec.Struct, frozen=True):
    """The fields of JoinGroup that the member needs if the group becomes a classic group."""

    session_timeout_ms: int
    # Subscription (ConsumerProtocol) by assignment protocol, in the member's order of preference.
    # Not empty, and each name once.
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def protocol_name(self) -> str:
        """The protocol that JoinGroup returns: the member's first one."""
        return self.protocols[0][0]

    @property
    def subscription_bytes(self) -> int:
        """The size of all subscriptions."""
        return sum(len(metadata) for _, metadata in self.protocols)


class ConsumerMember(GroupMember, frozen=True):
    """A member of a consumer group."""

    state: MemberState = MemberState.STABLE
    subscribed_topic_names: frozenset[str] = frozenset()
    # A regular expression in RE2 syntax; empty if there is none.
    subscribed_topic_regex: str = ""
    # The assignor that the client prefers, or None.
    server_assignor: str | None = None
    # Partitions that the client may use.
    assigned: Owned = NOTHING_OWNED
    # Partitions that the client must revoke. No other member gets them before that.
    pending_revocation: Owned = NOTHING_OWNED
    # Set if the client uses the classic protocol: JoinGroup, SyncGroup, Heartbeat.
    classic: ClassicMetadata | None = None

    @property
    def uses_classic_protocol(self) -> bool:
        """Whether the client uses the classic protocol."""
        return self.classic is not None

    @property
    def must_revoke(self) -> bool:
        """Whether the client must give up partitions before it gets a new epoch."""
        return self.state is MemberState.UNREVOKED_PARTITIONS

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether the member has all partitions of that target assignment."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch


class ResolvedRegex(msgspec.Struct, frozen=True):
    """The result of the last resolution."""

    topics: frozenset[str]
    # Offset of the metadata image whose topics were matched.
    version: int
    # Wall clock of the resolution, in ms.
    timestamp: int


UNRESOLVED = ResolvedRegex(frozenset(), -1, -1)

# Estimated overhead of a member, of each of its topics and of each partition, in bytes.
_MEMBER_BYTES = 1_000
_TOPIC_BYTES = 100
_PARTITION_BYTES = 100


class ConsumerGroup(ReplayedGroup[ConsumerMember, Target]):
    """Members, epochs, target assignment and regular expressions of a group."""

    kind: ClassVar[str] = "consumer"

    __slots__ = (
        "_assignors",
        "_classic_members",
        "_classic_protocols",
        "_names",
        "_owners",
        "_regexes",
        "has_partition_metadata",
        "resolved",
    )

    def __init__(self, group_id: str, memory: GroupMemory) -> None:
        super().__init__(group_id, memory)
        # Member id by instance id.
        self.static_members: dict[str, str] = {}
        # Results of regular expressions.
        self.resolved: dict[str, ResolvedRegex] = {}
        # Whether a broker before 4.1 has written the record of the subscribed topics.
        self.has_partition_metadata = False
        # Subscribed members by topic name, and by regular expression. No count is 0.
        self._names: dict[str, int] = {}
        self._regexes: dict[str, int] = {}
        # Members by the assignor that they prefer. No count is 0.
        self._assignors: dict[str, int] = {}
        # Number of members of the classic protocol, and of those that support each of its
        # assignment protocols. No count of the latter is 0.
        self._classic_members = 0
        self._classic_protocols: dict[str, int] = {}
        # Member epoch of the owner, by topic id and partition. No inner mapping is empty.
        self._owners: dict[bytes, dict[int, int]] = {}

    # State.

    @property
    def state(self) -> ConsumerGroupState:
        """The state, by the table at the head of this file."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(each.is_reconciled_to(self.assignment_epoch) for each in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def is_settled(self, member: ConsumerMember) -> bool:
        """Whether a heartbeat that reports no change leaves the group and `member` as they are."""
        epoch = self.assignment_epoch
        return (
            epoch >= self.group_epoch >= self.compared_epoch
            and member.is_reconciled_to(epoch)
            and not self._regexes
        )

    def target_of(self, member_id: str, instance_id: str | None) -> Target:
        """Return the target assignment of a member; for a static member, that of its instance."""
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            return NOTHING if known is None else self.targets.get(known, NOTHING)
        return self.targets.get(member_id, NOTHING)

    def is_owned(self, topic_id: bytes, partition: int) -> bool:
        """Whether a member owns the partition, or has not revoked it yet."""
        return partition in self._owners.get(topic_id, {})

    def preferred_assignor(
        self, before: ConsumerMember | None = None, after: ConsumerMember | None = None
    ) -> str | None:
        """Return the assignor that most members prefer, or None.

        Args:
            before: a member to leave out.
            after: a member to count in addition.
        """
        if not self._assignors and (after is None or after.server_assignor is None):
            return None
        votes = dict(self._assignors)
        change_counts(votes, () if before is None else _assignor_of(before), -1)
        change_counts(votes, () if after is None else _assignor_of(after), 1)
        # If several have the most votes, Kafka selects `uniform`, the first one in its map.
        return max(votes, key=lambda name: (votes[name], name), default=None)

    # Subscriptions.

    def regex_subscribers(self, regex: str) -> int:
        """Return the number of members that subscribe by this regular expression."""
        return self._regexes.get(regex, 0)

    def regexes(self) -> Collection[str]:
        """Return the regular expressions of all members."""
        return self._regexes.keys()

    def subscribed_names(self) -> set[str]:
        """Return the names of all topics to which members subscribe."""
        return self._names.keys() | self._matched(self.resolved)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to the topic, by name or by regular expression."""
        return topic in self._names or any(topic in each.topics for each in self.resolved.values())

    def subscribed_names_with(self, before: ConsumerMember, after: ConsumerMember) -> set[str]:
        """Return the subscribed names if one member changes or joins.

        The result of a new expression counts once its record is written.
        """
        left = before.subscribed_topic_names - after.subscribed_topic_names
        names = self._names.keys() | after.subscribed_topic_names
        names -= {name for name in left if self._names.get(name) == 1}
        regex, dropped = before.subscribed_topic_regex, None
        if after.subscribed_topic_regex != regex and self.regex_subscribers(regex) == 1:
            dropped = regex
        if not self.resolved:
            return names
        kept = {each: found for each, found in self.resolved.items() if each != dropped}
        return names | self._matched(kept)

    def subscribed_names_without(self, members: Collection[ConsumerMember]) -> set[str]:
        """Return the subscribed names if these members leave."""
        names, regexes = dict(self._names), dict(self._regexes)
        for member in members:
            change_counts(names, member.subscribed_topic_names, -1)
            change_counts(regexes, _regex_of(member), -1)
        kept = {
            regex: found
            for regex, found in self.resolved.items()
            if regex in regexes or regex not in self._regexes
        }
        return names.keys() | self._matched(kept)

    def subscribed_names_if(self, resolved: Mapping[str, ResolvedRegex]) -> set[str]:
        """Return the subscribed names if these expressions are resolved in this way."""
        return self._names.keys() | self._matched({**self.resolved, **resolved})

    @staticmethod
    def _matched(resolved: Mapping[str, ResolvedRegex]) -> set[str]:
        return {topic for each in resolved.values() for topic in each.topics}

    def is_homogeneous_with(
        self, before: ConsumerMember | None, after: ConsumerMember | None
    ) -> bool:
        """Whether all members have the same subscription, by Kafka's counts.

        Members with a regular expression have the same subscription if all have the same one, and
        if no member subscribes to one of its topics by name.

        Args:
            before: a member to leave out.
            after: a member to count in addition.
        """
        names, regexes, count = dict(self._names), dict(self._regexes), len(self.members)
        for member, change in ((before, -1), (after, 1)):
            if member is not None:
                change_counts(names, member.subscribed_topic_names, change)
                change_counts(regexes, _regex_of(member), change)
                count += change
        if not regexes:
            return all(each == count for each in names.values())
        return not names and all(each == count for each in regexes.values())

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the names of the topics to which a member subscribes.

        An expression that is not resolved yet matches no topic.
        """
        if not member.subscribed_topic_regex:
            return member.subscribed_topic_names
        found = self.resolved.get(member.subscribed_topic_regex, UNRESOLVED)
        return member.subscribed_topic_names | found.topics

    # Members of the classic protocol.

    def has_only_classic_members_without(self, leaving: Collection[ConsumerMember]) -> bool:
        """Whether all members use the classic protocol once these members have left."""
        leaving_classic = sum(each.uses_classic_protocol for each in leaving)
        return self._classic_members - leaving_classic == len(self.members) - len(leaving)

    def supports_classic_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a client with these protocols can join by JoinGroup."""
        return protocol_type == CONSUMER_PROTOCOL_TYPE and any(
            self._classic_protocols.get(name, 0) == self._classic_members for name in names
        )

    def is_waiting_for_partitions(self, member: ConsumerMember) -> bool:
        """Whether other members still own partitions of the member's target assignment."""
        return any(
            self.is_owned(topic_id, index)
            for topic_id, indexes in self.targets.get(member.member_id, NOTHING).items()
            for index in indexes - member.assigned.get(topic_id, {}).keys()
        )

    # Replay.

    def put(self, member: ConsumerMember) -> None:
        """Add or replace a member."""
        before = self.members.get(member.member_id)
        if before is not None:
            if _is_same_subscriber(before, member):
                self._move(before, member)
                return
            self._forget(before)
        self.members[member.member_id] = member
        self._count(member, 1)
        self._resize(_bytes_of(member))
        for partitions in (member.assigned, member.pending_revocation):
            if partitions:
                self._add_owner(partitions, member.member_epoch)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def _move(self, before: ConsumerMember, member: ConsumerMember) -> None:
        """Replace a member by one that differs in epochs, state and partitions only."""
        self.members[member.member_id] = member
        self._resize((_partitions_of(member) - _partitions_of(before)) * _PARTITION_BYTES)
        for partitions in (before.assigned, before.pending_revocation):
            if partitions:
                self._remove_owner(partitions, before.member_epoch)
        for partitions in (member.assigned, member.pending_revocation):
            if partitions:
                self._add_owner(partitions, member.member_epoch)

    def remove(self, member_id: str) -> None:
        """Remove a member. Another record removes its target assignment."""
        before = self.members.pop(member_id, None)
        self._forget(before)
        if before is not None and self.static_members.get(before.instance_id or "") == member_id:
            del self.static_members[before.instance_id or ""]

    def _forget(self, member: ConsumerMember | None) -> None:
        """Remove a known member's subscriptions and partitions from the indexes."""
        if member is None:
            return
        self._count(member, -1)
        self._resize(-_bytes_of(member))
        for partitions in (member.assigned, member.pending_revocation):
            self._remove_owner(partitions, member.member_epoch)

    def _count(self, member: ConsumerMember, change: int) -> None:
        """Add a member to the counts of subscriptions and protocols (1), or remove it (-1)."""
        change_counts(self._names, member.subscribed_topic_names, change)
        if member.subscribed_topic_regex:
            change_counts(self._regexes, _regex_of(member), change)
        if member.server_assignor is not None:
            change_counts(self._assignors, _assignor_of(member), change)
        if member.classic is not None:
            self._classic_members += change
            protocols = [name for name, _ in member.classic.protocols]
            change_counts(self._classic_protocols, protocols, change)

    def growth_by(self, member: ConsumerMember) -> int:
        """Return by how many bytes the group grows if the member gets this state."""
        known = self.members.get(member.member_id)
        return _bytes_of(member) - (0 if known is None else _bytes_of(known))

    def _add_owner(self, partitions: Owned, epoch: int) -> None:
        for topic_id, indexes in partitions.items():
            owners = self._owners.setdefault(topic_id, {})
            for index in indexes:
                # A later epoch wins, since the log may be compacted: its older records of other
                # members then follow.
                if owners.get(index, NO_EPOCH) < epoch:
                    owners[index] = epoch
                else:
                    owners.setdefault(index, epoch)

    def _remove_owner(self, partitions: Owned, epoch: int) -> None:
        for topic_id, indexes in partitions.items():
            owners = self._owners.get(topic_id, {})
            for index in indexes:
                if owners.get(index) == epoch:
                    del owners[index]
            if not owners:
                self._owners.pop(topic_id, None)


def _bytes_of(member: ConsumerMember) -> int:
    """Return the estimated memory size of a member and of its target assignment, in bytes."""
    names = member.subscribed_topic_names
    return (
        _MEMBER_BYTES
        + sum(map(len, names))
        + len(names) * _TOPIC_BYTES
        + len(member.subscribed_topic_regex)
        + len(member.member_id)
        + _partitions_of(member) * _PARTITION_BYTES
        + _classic_bytes_of(member)
    )


def _partitions_of(member: ConsumerMember) -> int:
    """Return how many partitions a member owns, or has not revoked yet."""
    assigned, pending = member.assigned, member.pending_revocation
    count = sum(map(len, assigned.values())) if assigned else 0
    return count + sum(map(len, pending.values())) if pending else count


def _is_same_subscriber(before: ConsumerMember, after: ConsumerMember) -> bool:
    """Whether identity and subscription are the same objects; then they are equal."""
    return (
        after.subscribed_topic_names is before.subscribed_topic_names
        and after.subscribed_topic_regex is before.subscribed_topic_regex
        and after.server_assignor is before.server_assignor
        and after.instance_id is before.instance_id
        and after.classic is before.classic
    )


def _classic_bytes_of(member: ConsumerMember) -> int:
    return 0 if member.classic is None else member_bytes(0, dict(member.classic.protocols))


def _regex_of(member: ConsumerMember) -> tuple[str, ...]:
    regex = member.subscribed_topic_regex
    return (regex,) if regex else ()


def _assignor_of(member: ConsumerMember) -> tuple[str, ...]:
    return () if member.server_assignor is None else (member.server_assignor,)
