"""The members that read the partitions of a group in the last samples, at each change."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.cli.admin.group_lag import PartitionProgress
    from barnabas.client.topic_partition import TopicPartition

# Changes that are kept of each group.
CHANGES_MAX = 8
# Groups with more partitions are not recorded.
_PARTITIONS_MAX = 1000
_GROUPS_MAX = 200


class Assignment(NamedTuple):
    """The owners of the partitions of a group since a time."""

    # Monotonic time (s) of the first sample with these owners.
    since: float
    # Member ids, by the partitions that have an owner.
    owners: Mapping[TopicPartition, str]


class Assignments:
    """The last assignments of each group. The first sample of a group is the oldest one known."""

    def __init__(self) -> None:
        self._by_group: dict[str, deque[Assignment]] = {}

    def add(self, group: str, at: float, partitions: Iterable[PartitionProgress]) -> None:
        """Add the owners of a sample; the same owners as before change nothing."""
        owners = {each.partition: each.member.member_id for each in partitions if each.member}
        if len(owners) > _PARTITIONS_MAX:
            return
        known = self._by_group.get(group)
        if known is None:
            if not owners or len(self._by_group) >= _GROUPS_MAX:
                return
            known = self._by_group[group] = deque(maxlen=CHANGES_MAX)
        if not known or known[-1].owners != owners:
            known.append(Assignment(at, owners))

    def keep_only(self, groups: Iterable[str]) -> None:
        """Forget the groups that do not exist any more."""
        for gone in self._by_group.keys() - set(groups):
            del self._by_group[gone]

    def of(self, group: str) -> list[Assignment]:
        """Return the assignments of a group, the oldest first."""
        return list(self._by_group.get(group, ()))
