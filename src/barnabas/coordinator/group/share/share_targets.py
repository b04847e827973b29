"""Computes the target assignments of share groups (Kafka: TargetAssignmentBuilder).

The assignment of a small group is computed within the heartbeat that needs it, as in Kafka, and the
one of a large group in slices (`sliced_targets`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.coordinator.group.assignment import NOTHING
from barnabas.coordinator.group.consumer.assignors.assignor_input import (
    STEP,
    AssignorInput,
    MemberInput,
)
from barnabas.coordinator.group.share.share_records import target_epoch_record, target_record
from barnabas.coordinator.group.share.simple_assignor import assign_simply
from barnabas.coordinator.group.targets import (
    GroupCopy,
    SlicedTargets,
    TargetRecords,
    differing,
    is_large,
)
from barnabas.waiting.steps import run_to_end

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeAlias

    from barnabas.coordinator.group.assignment import Target
    from barnabas.coordinator.group.consumer.assignors.assignor_input import Assigning
    from barnabas.coordinator.group.share.share_group import ShareGroup
    from barnabas.coordinator.group.share.share_member import ShareMember
    from barnabas.coordinator.group.share.share_shard import ShareShard

    _Copy: TypeAlias = GroupCopy[ShareGroup, ShareMember, Target]

# The name of the only assignor.
ASSIGNOR = "simple"
# A heartbeat computes the assignment of a group below this limit at once (see `is_large`). That
# takes a few milliseconds.
AT_ONCE_MAX = 1_000


class ShareTargets:
    """The computations of the groups of one shard; at most one per group runs in slices."""

    __slots__ = ("_shard", "_sliced")

    def __init__(self, shard: ShareShard) -> None:
        self._shard = shard
        self._sliced: SlicedTargets[ShareGroup, ShareMember, Target] = SlicedTargets(
            "share-targets",
            shard.groups,
            shard.timers,
            shard.clock,
            TargetRecords(target_record, target_epoch_record, _replacement),
        )

    def is_large(self, group: ShareGroup, changed: ShareMember) -> bool:
        """Whether the target assignment must be computed in slices.

        Args:
            group: the group.
            changed: a member that is new or has changed.
        """
        before = group.members.get(changed.member_id)
        names = partial(group.subscribed_names_with, before, changed)
        return is_large(1 + len(group.members), names, self._shard.topics, AT_ONCE_MAX)

    def is_running(self, group_id: str) -> bool:
        """Whether a computation for the group is running."""
        return self._sliced.is_running(group_id)

    def start(self, group_id: str) -> None:
        """Compute the target assignment after the records of the current heartbeat are replayed."""
        self._sliced.start(group_id, self._assign)

    def compute(
        self, group: ShareGroup, epoch: int, changed: ShareMember
    ) -> tuple[Mapping[str, Target], Mapping[str, Target]]:
        """Return the new targets of all members, and of those for which it changed.

        Args:
            group: the group.
            epoch: the group epoch after the heartbeat.
            changed: a member that is new or has changed.
        """
        members = {**group.members, changed.member_id: changed}
        targets = run_to_end(self._assign(GroupCopy(group, epoch, members, group.targets)))
        return targets, differing(targets, group.targets)

    def _assign(self, copy: _Copy) -> Assigning:
        """Return the new targets. Only partitions with initialized state are assigned. Yields."""
        topics, state_topics = self._shard.topics, copy.group.state_topics
        initialized = {} if state_topics is None else state_topics.initialized
        topic_ids: dict[frozenset[str], frozenset[bytes]] = {}
        counts: dict[bytes, int] = {}
        inputs: dict[str, MemberInput] = {}
        for position, (member_id, member) in enumerate(copy.members.items()):
            names = member.subscribed_topic_names
            if names not in topic_ids:
                found = {topics.topic_id(name): name for name in names}
                existing = {each: name for each, name in found.items() if each is not None}
                counts |= {each: topics.partition_count(name) for each, name in existing.items()}
                topic_ids[names] = frozenset(existing)
            inputs[member_id] = MemberInput(topic_ids[names], copy.known.get(member_id, NOTHING))
            if position % STEP == STEP - 1:
                yield
        assignable = {each: topic.partitions for each, topic in initialized.items()}
        given = AssignorInput(inputs, counts, len(topic_ids) <= 1, assignable)
        return (yield from assign_simply(given))


def _replacement(_group: Any, _member: ShareMember) -> None:
    """Return None: share groups have no static members."""
