"""Assignments of topic partitions, by topic id."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# A target assignment: the partitions of each topic, by topic id. No set is empty.
Target = Mapping[bytes, frozenset[int]]
# Partitions that a member owns: by topic id and partition, the epoch in which the partition was
# assigned to the member (KIP-1251). No inner mapping is empty.
Owned = Mapping[bytes, Mapping[int, int]]

NOTHING: Mapping[bytes, frozenset[int]] = MappingProxyType({})
NOTHING_OWNED: Mapping[bytes, Mapping[int, int]] = MappingProxyType({})


def target_of(partitions: Mapping[bytes, Iterable[int]]) -> Target:
    """Return the target assignment without empty topics."""
    frozen = {topic_id: frozenset(indexes) for topic_id, indexes in partitions.items()}
    return {topic_id: indexes for topic_id, indexes in frozen.items() if indexes}
