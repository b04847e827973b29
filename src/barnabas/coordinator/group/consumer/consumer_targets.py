"""Computes the target assignments of consumer groups (Kafka: TargetAssignmentBuilder)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.assignment import NOTHING, Target, target_of
from barnabas.coordinator.group.assignors.assignor_input import STEP, AssignorInput, MemberInput
from barnabas.coordinator.group.assignors.range_assignor import assign_ranges
from barnabas.coordinator.group.assignors.uniform_assignor import assign_uniformly
from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup, ConsumerMember
from barnabas.coordinator.group.consumer.consumer_records import target_epoch_record, target_record
from barnabas.coordinator.group.targets import SlicedTargets, TargetRecords, differing, is_large
from barnabas.waiting.steps import run_to_end

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from typing import Any, TypeAlias

    from barnabas.coordinator.group.assignors.assignor_input import Assigning
    from barnabas.coordinator.group.consumer.consumer_shard import ConsumerShard
    from barnabas.coordinator.group.targets import GroupCopy
    from barnabas.coordinator.group.topics import TopicsView

    _Copy: TypeAlias = GroupCopy[ConsumerGroup, ConsumerMember, Target]


# Kafka's assignors; the first one is the default.
ASSIGNORS: Mapping[str, Callable[[AssignorInput], Assigning]] = {
    "uniform": assign_uniformly,
    "range": assign_ranges,
}


class TargetInput(msgspec.Struct, frozen=True):
    """The state of a group from which its target assignment is computed."""

    group: ConsumerGroup
    members: Mapping[str, ConsumerMember]
    # The current target assignment by member id.
    known: Mapping[str, Target]
    is_homogeneous: bool

    @classmethod
    def of(cls, group: ConsumerGroup, changed: ConsumerMember) -> TargetInput:
        """Return a copy of the current state, in which one member has changed.

        Args:
            group: the group.
            changed: a member that is new or has changed. It may replace a static member.
        """
        members, known = dict(group.members), dict(group.targets)
        former = group.static_members.get(changed.instance_id or "")
        if former is not None and former != changed.member_id:
            before = members.pop(former, None)
            if former in known:
                known[changed.member_id] = known.pop(former)
        else:
            before = members.get(changed.member_id)
        members[changed.member_id] = changed
        is_homogeneous = len(members) == 1 or group.is_homogeneous_with(before, changed)
        return cls(group, members, known, is_homogeneous)

    def assign(self, assignor: str, topics: TopicsView) -> Assigning:
        """Return the new target assignment of all members. Yields.

        Args:
            assignor: the name of the assignor.
            topics: the topics of the cluster.
        """
        if len(self.members) == 1:
            return self._assign_all(topics)
        given = yield from self._given(topics)
        return (yield from ASSIGNORS[assignor](given))

    def _assign_all(self, topics: TopicsView) -> dict[str, Target]:
        """Return the target assignment of the only member, the same with all assignors."""
        ((member_id, member),) = self.members.items()
        counts: dict[bytes, int] = {}
        _existing(self.group, member, topics, counts)
        return {member_id: target_of({each: range(count) for each, count in counts.items()})}

    def _given(self, topics: TopicsView) -> Generator[None, None, AssignorInput]:
        topic_ids: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}
        counts: dict[bytes, int] = {}
        inputs: dict[str, MemberInput] = {}
        for position, (member_id, member) in enumerate(self.members.items()):
            subscription = (member.subscribed_topic_names, member.subscribed_topic_regex)
            if subscription not in topic_ids:
                topic_ids[subscription] = _existing(self.group, member, topics, counts)
            inputs[member_id] = MemberInput(
                topic_ids[subscription], self.known.get(member_id, NOTHING), member.instance_id
            )
            if position % STEP == STEP - 1:
                yield
        return AssignorInput(inputs, counts, self.is_homogeneous)


def compute_targets(
    group: ConsumerGroup, changed: ConsumerMember, assignor: str, topics: TopicsView
) -> tuple[dict[str, Target], dict[str, Target]]:
    """Return the new target assignment of all members, and of those for which it changed.

    Args:
        group: the group.
        changed: a member that is new or has changed. It may replace a static member.
        assignor: the name of the assignor.
        topics: the topics of the cluster.
    """
    before = TargetInput.of(group, changed)
    found = run_to_end(before.assign(assignor, topics))
    return found, differing(found, before.known)


def _existing(
    group: ConsumerGroup, member: ConsumerMember, topics: TopicsView, counts: dict[bytes, int]
) -> frozenset[bytes]:
    """Return the ids of the existing topics of a subscription. Add their partition counts."""
    found: set[bytes] = set()
    for name in group.topics_of(member):
        topic_id = topics.topic_id(name)
        if topic_id is not None:
            found.add(topic_id)
            counts[topic_id] = topics.partition_count(name)
    return frozenset(found)


# A heartbeat computes the assignment of a group below this limit at once (see `is_large`). That
# takes a few milliseconds.
AT_ONCE_MAX = 1_000


class ConsumerTargets(SlicedTargets[ConsumerGroup, ConsumerMember, Target]):
    """The computations of the groups of one shard; at most one per group runs in slices."""

    __slots__ = ("_assignor_of", "_shard")

    def __init__(self, shard: ConsumerShard, assignor_of: Callable[[ConsumerGroup], str]) -> None:
        self._shard = shard
        # Returns the name of a group's assignor.
        self._assignor_of = assignor_of
        records = TargetRecords(target_record, target_epoch_record, _replacement)
        super().__init__(shard.groups, shard.timers, shard.clock, records)

    def is_large(self, group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember) -> bool:
        """Whether the target assignment must be computed in slices.

        Args:
            group: the group.
            before: a member that changes or joins.
            after: the same member after the change.
        """
        names = partial(group.subscribed_names_with, before, after)
        return is_large(1 + len(group.members), names, self._shard.topics, AT_ONCE_MAX)

    def assign(self, copy: _Copy) -> Assigning:
        """Return the new targets. Yields."""
        group, assignor = copy.group, self._assignor_of(copy.group)
        is_homogeneous = group.is_homogeneous_with(None, None)
        before = TargetInput(group, copy.members, copy.known, is_homogeneous)
        yield
        return (yield from before.assign(assignor, self._shard.topics))


def _replacement(group: Any, member: ConsumerMember) -> str | None:
    found: str | None = group.static_members.get(member.instance_id)
    return found
