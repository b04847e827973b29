"""Gather the facts about a group for `why`."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from barnabas.cli.groups.group_lag import group_positions
from barnabas.cli.transactions.held_back import gather_held_back
from barnabas.cli.why.facts import FetchQuota, GroupFacts, ReaderFacts
from barnabas.cli.why.gather import gather_brokers
from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.client.admin.configs.quotas import QuotaEntity
    from barnabas.client.admin.groups.groups import GroupDescription, GroupMember
    from barnabas.client.admin.groups.streams_groups import StreamsGroupDescription
    from barnabas.client.connections.metadata_cache import TopicInfo
    from barnabas.client.facade import Client
    from barnabas.client.fetch.list_offsets import ListedOffset

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
    before = group_positions(client, described)
    readers = _readers(client, described, before, before)
    elapsed = 0.0
    if any(reader.lag and reader.reader for reader in readers):
        started = time.monotonic()
        time.sleep(seconds)
        now = group_positions(client, described)
        elapsed = time.monotonic() - started
        described = _describe_again(client, described)
        readers = _readers(client, described, before, now)
    subscribed = {topic for member in described.members for topic in member.topics}
    streams = _streams(client, described)
    changelogs = {
        topic
        for each in (streams.subtopologies if streams is not None else ())
        for topic in each.changelog_topics
    }
    existing = client.describe_topics()
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
    )


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
    led = [tp for tp in existing if _leader(topics, tp) >= 0]
    admin = client.admin
    starts = admin.list_offsets(dict.fromkeys(led, "earliest"))
    watermarks = admin.list_offsets(dict.fromkeys(led, "latest"))
    stable = admin.list_offsets(dict.fromkeys(led, "latest"), read_committed=True)
    ends = _ends(client, topics, led)
    return [
        ReaderFacts(
            tp,
            before.get(tp),
            now.get(tp),
            _leader(topics, tp),
            _offset(starts.get(tp)),
            _offset(stable.get(tp)),
            _offset(watermarks.get(tp)),
            ends.get(tp),
            _name(members[tp]) if tp in members else "",
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


def _leader(topics: Mapping[str, TopicInfo], tp: TopicPartition) -> int:
    partition = topics[tp.topic].partitions.get(tp.partition)
    return -1 if partition is None else partition.leader


def _ends(
    client: Client, topics: Mapping[str, TopicInfo], led: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the leaders' log end offsets."""
    wanted: dict[int, dict[TopicPartition, str | int]] = {}
    for tp in led:
        wanted.setdefault(_leader(topics, tp), {})[tp] = "latest"
    found = {}
    for answer in client.admin.list_replica_offsets(wanted).values():
        for tp, each in {} if isinstance(answer, ClientError) else answer.items():
            if not isinstance(each, ClientError):
                found[tp] = each.offset
    return found


def _offset(found: ListedOffset | ClientError | None) -> int | None:
    return None if found is None or isinstance(found, ClientError) else found.offset


def _name(member: GroupMember) -> str:
    name = member.instance_id or member.client_id or member.member_id
    return f"{name} at {member.host}" if member.host else name


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
