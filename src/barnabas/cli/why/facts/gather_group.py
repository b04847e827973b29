"""Gather the facts about a group for `why`."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from barnabas.cli.groups.group_lag import group_positions
from barnabas.cli.transactions.held_back import gather_held_back
from barnabas.cli.why.facts.facts import FetchQuota, GroupFacts, ReaderFacts
from barnabas.cli.why.facts.gather import gather_brokers
from barnabas.cli.why.facts.gather_share import gather_shares
from barnabas.cli.why.facts.log_offsets import log_offsets
from barnabas.cli.why.facts.members import member_name
from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.client.admin.configs.quotas import QuotaEntity
    from barnabas.client.admin.groups.groups import GroupDescription
    from barnabas.client.admin.groups.streams_groups import StreamsGroupDescription
    from barnabas.client.facade import Client

__all__ = ["gather_group", "lowest_fetch_quotas"]

_AGAIN_S = 0.2


def gather_group(client: Client, name: str, seconds: float) -> GroupFacts:
    """Gather the facts about a group; read its committed offsets twice.

    Args:
        client: A client of the cluster.
        name: The group.
        seconds: Time between the two reads, if members have records to read.

    Raises:
        ClientError: No broker answers.
    """
    coordinator = _coordinator(client, name, seconds)
    described = client.admin.describe_groups([name], once=True)[name]
    brokers = gather_brokers(client, ())
    if isinstance(coordinator, ClientError) or isinstance(described, ClientError):
        return GroupFacts(name, described, coordinator, brokers, 0.0)
    readers: list[ReaderFacts] = []
    shares = None
    if described.type == "share":
        existing = client.describe_topics()
        shares, elapsed = gather_shares(client, described, existing, seconds)
    else:
        readers, described, elapsed = _read_twice(client, described, seconds)
        existing = client.describe_topics()
    subscribed = {topic for member in described.members for topic in member.topics}
    streams = _streams(client, described)
    changelogs = {
        topic
        for each in (streams.subtopologies if streams is not None else ())
        for topic in each.changelog_topics
    }
    read = {tp for member in described.members for tp in member.assignment}
    unread = [
        TopicPartition(topic, number)
        for topic in sorted(subscribed & set(existing))
        for number in sorted(existing[topic].partitions)
        if (topic, number) not in read
    ]
    return GroupFacts(
        name,
        described,
        coordinator,
        brokers,
        elapsed,
        _with_transactions(client, readers),
        frozenset((subscribed | changelogs) - set(existing)),
        unread,
        _fetch_quotas(client, {member.client_id for member in described.members}),
        streams,
        shares,
    )


def _read_twice(
    client: Client, described: GroupDescription, seconds: float
) -> tuple[list[ReaderFacts], GroupDescription, float]:
    """Return the readers, the group as it is after the second read, and the time in between."""
    before = group_positions(client, described)
    readers = _readers(client, described, before, before)
    if not any(reader.lag and reader.reader for reader in readers):
        return readers, described, 0.0
    started = time.monotonic()
    time.sleep(seconds)
    now = group_positions(client, described)
    elapsed = time.monotonic() - started
    described = _describe_again(client, described)
    return _readers(client, described, before, now), described, elapsed


def _streams(client: Client, described: GroupDescription) -> StreamsGroupDescription | None:
    """Return the topology and tasks of a streams group; None for other groups."""
    if described.type != "streams":
        return None
    found = client.admin.describe_streams_groups([described.group_id])[described.group_id]
    return None if isinstance(found, ClientError) else found


def _coordinator(client: Client, name: str, seconds: float) -> int | ClientError:
    """Return the group's coordinator, or the error of the lookup.

    Retriable errors are retried for `seconds`: the first lookup in a cluster creates the topic
    __consumer_offsets.
    """
    deadline = time.monotonic() + seconds
    while True:
        found = client.admin.coordinators([name])[name]
        if isinstance(found, int) or not found.retriable or time.monotonic() >= deadline:
            return found
        time.sleep(_AGAIN_S)


def _describe_again(client: Client, described: GroupDescription) -> GroupDescription:
    found = client.admin.describe_groups([described.group_id], once=True)[described.group_id]
    return described if isinstance(found, ClientError) else found


def _readers(
    client: Client,
    described: GroupDescription,
    before: Mapping[TopicPartition, int],
    now: Mapping[TopicPartition, int],
) -> list[ReaderFacts]:
    members = {tp: member for member in described.members for tp in member.assignment}
    wanted = sorted({*now, *members})
    if not wanted:
        return []
    topics = client.describe_topics()
    # Deleted topics have no records to read. A task has no partition in those of its topics that
    # have fewer partitions.
    is_streams = described.type == "streams"
    existing = [
        tp
        for tp in wanted
        if tp.topic in topics and (not is_streams or tp.partition in topics[tp.topic].partitions)
    ]
    logs = log_offsets(client, topics, existing)
    return [
        ReaderFacts(
            tp,
            before.get(tp),
            now.get(tp),
            *logs[tp],
            member_name(members[tp]) if tp in members else "",
            members[tp].client_id if tp in members else "",
        )
        for tp in existing
    ]


def _with_transactions(client: Client, readers: Iterable[ReaderFacts]) -> list[ReaderFacts]:
    """Add the open transactions at which readers wait."""
    found = []
    for each in readers:
        stable, watermark = each.last_stable_offset, each.high_watermark
        if stable is None or watermark is None or each.now is None:
            found.append(each)
        elif stable <= each.now and stable < watermark:
            held = gather_held_back(client, each.partition, stable, watermark)
            found.append(replace(each, held_back=held))
        else:
            found.append(each)
    return found


def _fetch_quotas(client: Client, client_ids: Iterable[str]) -> dict[str, FetchQuota]:
    """Return the fetch quotas of client ids, without an error if quotas cannot be described."""
    try:
        quotas = client.admin.describe_quotas({})
    except ClientError:
        return {}
    return lowest_fetch_quotas(quotas, client_ids)


def lowest_fetch_quotas(
    quotas: Mapping[QuotaEntity, Mapping[str, float]], client_ids: Iterable[str]
) -> dict[str, FetchQuota]:
    """Return the lowest fetch quota that may apply, by client id.

    A quota of users may apply, because the users of the members are unknown. The default for client
    ids applies to client ids without their own quota.
    """
    found: dict[str, FetchQuota] = {}
    for client_id in client_ids:
        for entity, values in quotas.items():
            rate, parts = values.get("consumer_byte_rate"), dict(entity)
            if rate is None or parts.get("client-id", client_id) not in (client_id, None):
                continue
            own = {**parts, "client-id": client_id}
            if (
                "client-id" in parts
                and parts["client-id"] is None
                and ("consumer_byte_rate" in quotas.get(tuple(sorted(own.items())), {}))
            ):
                continue
            if client_id not in found or rate < found[client_id].rate:
                found[client_id] = FetchQuota(_owner(parts, client_id), rate)
    return found


def _owner(parts: Mapping[str, str | None], client_id: str) -> str:
    words = []
    if "user" in parts:
        words.append("each user" if parts["user"] is None else f"user {parts['user']}")
    if "client-id" in parts:
        words.append(f"client id {client_id}")
    return " with ".join(words)
