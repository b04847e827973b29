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
)
from barnabas.client.admin.configs.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.admin.groups.groups import GroupDescription, GroupMember
    from barnabas.client.connections.metadata_cache import TopicInfo
    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["gather_shares"]


def gather_shares(
    client: Client, described: GroupDescription, topics: Mapping[str, TopicInfo], seconds: float
) -> tuple[ShareFacts, float]:
    """Gather the facts about the share partitions of a group; read their states twice.

    Args:
        client: A client of the cluster.
        described: The group.
        topics: All topics.
        seconds: Time between the two reads, if members have records to process.

    Returns:
        The facts, and the time between the reads (s); 0 after a single read.
    """
    members: dict[TopicPartition, list[GroupMember]] = {}
    for member in described.members:
        for tp in member.assignment:
            members.setdefault(tp, []).append(member)
    before = _read(client, described.group_id, members)
    now, elapsed = before, 0.0
    if any(_may_wait(each) and members.get(tp) for tp, each in before.items()):
        started = time.monotonic()
        time.sleep(seconds)
        now = _read(client, described.group_id, members)
        elapsed = time.monotonic() - started
    # Deleted topics have no records to read.
    there = sorted(tp for tp in now if tp.topic in topics)
    logs = log_offsets(client, topics, there)
    limits = _limits(client, described.group_id)
    partitions = [
        SharePartitionFacts(tp, before.get(tp, now[tp]), now[tp], logs[tp], members.get(tp, ()))
        for tp in there
    ]
    if limits is not None and limits.is_read_committed:
        partitions = [_with_transactions(client, each) for each in partitions]
    return ShareFacts(partitions, limits), elapsed


def _may_wait(reading: ShareReading) -> bool:
    return reading.lag != 0


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
