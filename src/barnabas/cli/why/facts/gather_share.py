"""Gather the facts about a share group for `why` (KIP-932)."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from barnabas.cli.transactions.held_back import gather_held_back
from barnabas.cli.why.facts.log_offsets import log_offsets
from barnabas.cli.why.facts.share_facts import (
    ShareFacts,
    ShareLimits,
    SharePartitionFacts,
    ShareReading,
    processed_between,
)
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.admin.group_descriptions import GroupDescription, GroupMember
    from barnabas.client.connections.metadata_cache import TopicInfo
    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["SharePositions"]


class SharePositions:
    """The states of a share group's partitions, which are read several times.

    Args:
        client: A client of the cluster.
        described: The group.
    """

    def __init__(self, client: Client, described: GroupDescription) -> None:
        self._client = client
        self.described = described
        self._members: dict[TopicPartition, list[GroupMember]] = {}
        for member in described.members:
            for tp in member.assignment:
                self._members.setdefault(tp, []).append(member)
        self._started = time.monotonic()
        self._before = self._now = _read(client, described.group_id, self._members)
        # Time between the first and the last read (s); 0 after a single read.
        self.seconds = 0.0

    @property
    def may_wait(self) -> bool:
        """Whether members have records to process."""
        return any(each.lag != 0 and self._members.get(tp) for tp, each in self._before.items())

    @property
    def is_stalled(self) -> bool:
        """Whether members with records to process have finished none since the first read."""
        return any(
            each.lag
            and self._members.get(tp)
            and not processed_between(self._before.get(tp, each), each)
            for tp, each in self._now.items()
        )

    def read_again(self) -> None:
        """Read the states."""
        self._now = _read(self._client, self.described.group_id, self._members)
        self.seconds = time.monotonic() - self._started

    def facts(self, topics: Mapping[str, TopicInfo]) -> ShareFacts:
        """Return the facts about the share partitions, as of the last read."""
        client, members, now = self._client, self._members, self._now
        # Deleted topics have no records to read.
        there = sorted(tp for tp in now if tp.topic in topics)
        logs = log_offsets(client, topics, there)
        limits = _limits(client, self.described.group_id)
        partitions = [
            SharePartitionFacts(
                tp, self._before.get(tp, now[tp]), now[tp], logs[tp], members.get(tp, ())
            )
            for tp in there
        ]
        if limits is not None and limits.is_read_committed:
            partitions = [_with_transactions(client, each) for each in partitions]
        return ShareFacts(partitions, limits)


def _read(
    client: Client, group: str, assigned: Iterable[TopicPartition]
) -> dict[TopicPartition, ShareReading]:
    """Read the offsets and states of all share partitions that have some, or have members."""
    offsets = client.admin.describe_share_group_offsets([group])[group]
    known = {} if isinstance(offsets, ClientError) else offsets
    wanted: Sequence[TopicPartition] = sorted({*known, *assigned})
    states = client.admin.describe_share_group_states(group, wanted)
    error = offsets if isinstance(offsets, ClientError) else None
    return {tp: ShareReading(known.get(tp, error), states[tp]) for tp in wanted}


def _limits(client: Client, group: str) -> ShareLimits | None:
    """Return the configs of the group; None if they cannot be described."""
    resource = ConfigResource(ResourceType.GROUP, group)
    try:
        described = client.admin.describe_configs([resource]).get(resource)
    except ClientError:
        return None
    if described is None or isinstance(described, ClientError):
        return None
    found = {entry.name: entry.value for entry in described if entry.value is not None}
    try:
        return ShareLimits(
            int(found["share.delivery.count.limit"]),
            int(found["share.record.lock.duration.ms"]),
            int(found["share.partition.max.record.locks"]),
            found.get("share.isolation.level") == "read_committed",
        )
    except KeyError:
        # Brokers before 4.2 have fewer configs of share groups.
        return None


def _with_transactions(client: Client, facts: SharePartitionFacts) -> SharePartitionFacts:
    """Add the open transactions at which the group waits."""
    stable, watermark = facts.log.last_stable_offset, facts.log.high_watermark
    start = facts.now.start_offset
    if stable is None or watermark is None or start is None or not stable <= start < watermark:
        return facts
    held = gather_held_back(client, facts.partition, stable, watermark)
    return replace(facts, held_back=held)
