"""Gather the facts about groups for `why`, share groups (KIP-932) included."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.admin.group_lag import group_positions
from barnabas.cli.admin.held_back import gather_held_back
from barnabas.cli.why.facts import (
    COMMIT_INTERVAL_S,
    FetchQuota,
    GroupFacts,
    ReaderFacts,
    ShareFacts,
    ShareLimits,
    SharePartitionFacts,
    ShareReading,
    log_offsets,
    member_name,
    processed_between,
)
from barnabas.cli.why.gather import first_record, gather_brokers
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError, CorruptRecordsError
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.cli.why.facts import BrokerFacts
    from barnabas.client.admin.configs import QuotaEntity
    from barnabas.client.admin.group_descriptions import (
        GroupDescription,
        GroupMember,
        StreamsGroupDescription,
    )
    from barnabas.client.connections.metadata_cache import TopicInfo
    from barnabas.client.facade import Client

_AGAIN_S = 0.2
# A member without progress is observed for this time, so that a commit interval passes.
_CONFIRM_S = COMMIT_INTERVAL_S + 1.5
_LOOK_S = 0.5
# Largest number of positions of a group at which a record is read.
_READ_MAX = 10


class _Observed(NamedTuple):
    """A group as it was found, and its positions."""

    name: str
    coordinator: int | ClientError
    description: GroupDescription | ClientError
    # None if the group has no coordinator or cannot be described.
    positions: ReaderPositions | SharePositions | None


def gather_groups(client: Client, names: Sequence[str], seconds: float) -> list[GroupFacts]:
    """Gather the facts about groups; read their positions again after a pause.

    All groups share the pause. Groups whose members make no progress are then observed until they
    do, or until a member with the default commit interval would have committed.

    Args:
        names: The groups.
        seconds: Time between the two reads, if members have records to read.

    Raises:
        ClientError: No broker answers.
    """
    brokers = gather_brokers(client, ())
    observed = [_observe(client, name, seconds) for name in names]
    started = time.monotonic()
    pause = seconds
    waiting = [each for _, _, _, each in observed if each is not None and each.may_wait]
    while waiting:
        time.sleep(pause)
        pause = _LOOK_S
        for each in waiting:
            each.read_again()
        if time.monotonic() - started >= _CONFIRM_S:
            break
        waiting = [each for each in waiting if each.is_stalled]
    return [_facts(client, each, brokers) for each in observed]


def _observe(client: Client, name: str, seconds: float) -> _Observed:
    """Describe a group, and read its positions for the first time."""
    coordinator = _coordinator(client, name, seconds)
    described = client.admin.describe_groups([name], once=True)[name]
    positions: ReaderPositions | SharePositions | None = None
    if not isinstance(coordinator, ClientError) and not isinstance(described, ClientError):
        is_share = described.type == "share"
        positions = (SharePositions if is_share else ReaderPositions)(client, described)
    return _Observed(name, coordinator, described, positions)


def _facts(client: Client, observed: _Observed, brokers: BrokerFacts) -> GroupFacts:
    positions = observed.positions
    if positions is None:
        return GroupFacts(observed.name, observed.description, observed.coordinator, brokers, 0.0)
    readers: list[ReaderFacts] = []
    shares = None
    if isinstance(positions, SharePositions):
        described = positions.described
        existing = client.describe_topics()
        shares = positions.facts(existing)
    else:
        described, readers = positions.readers()
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
        name=observed.name,
        description=described,
        coordinator=observed.coordinator,
        brokers=brokers,
        seconds=positions.seconds,
        readers=_with_unreadable(client, _with_transactions(client, readers)),
        missing_topics=frozenset((subscribed | changelogs) - set(existing)),
        unread=unread,
        fetch_quotas=_fetch_quotas(client, {member.client_id for member in described.members}),
        streams=streams,
        shares=shares,
    )


class ReaderPositions:
    """The committed offsets of a group, which are read several times."""

    def __init__(self, client: Client, described: GroupDescription) -> None:
        self._client = client
        self._described = described
        self._started = time.monotonic()
        self._before = self._now = group_positions(client, described)
        self._first = _readers(client, described, self._before, self._now)
        # Time between the first and the last read (s); 0 after a single read.
        self.seconds = 0.0

    @property
    def may_wait(self) -> bool:
        """Whether a member has records to read."""
        return any(each.lag and each.reader for each in self._first)

    @property
    def is_stalled(self) -> bool:
        """Whether a member with records to read has not committed since the first read."""
        return any(
            each.lag
            and each.reader
            and not each.is_in_transaction
            and self._now.get(each.partition) == each.before
            for each in self._first
        )

    def read_again(self) -> None:
        """Read the committed offsets."""
        self._now = group_positions(self._client, self._described)
        self.seconds = time.monotonic() - self._started

    def readers(self) -> tuple[GroupDescription, list[ReaderFacts]]:
        """Return the group and the facts about its partitions, as of the last read."""
        if not self.seconds:
            return self._described, self._first
        described = _describe_again(self._client, self._described)
        return described, _readers(self._client, described, self._before, self._now)


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
        if each.is_in_transaction:
            assert stable is not None
            assert watermark is not None
            held = gather_held_back(client, each.partition, stable, watermark)
            found.append(replace(each, held_back=held))
        else:
            found.append(each)
    return found


def _with_unreadable(client: Client, readers: Iterable[ReaderFacts]) -> list[ReaderFacts]:
    """Read a record at each position that does not advance, as a consumer does."""
    found: list[ReaderFacts] = []
    for each in readers:
        error = None
        if each.is_stalled and sum(other.is_stalled for other in found) < _READ_MAX:
            assert each.now is not None
            assert each.high_watermark is not None
            try:
                first_record(client, each.partition, each.now, each.high_watermark)
            except CorruptRecordsError as corrupt:
                error = corrupt
            except (ClientError, TimeoutError):
                # Other reasons explain it.
                error = None
        found.append(replace(each, unreadable=error))
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


class SharePositions:
    """The states of a share group's partitions, which are read several times."""

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
            partitions = [_with_open_transactions(client, each) for each in partitions]
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


def _with_open_transactions(client: Client, facts: SharePartitionFacts) -> SharePartitionFacts:
    """Add the open transactions at which the group waits."""
    stable, watermark = facts.log.last_stable_offset, facts.log.high_watermark
    start = facts.now.start_offset
    if stable is None or watermark is None or start is None or not stable <= start < watermark:
        return facts
    held = gather_held_back(client, facts.partition, stable, watermark)
    return replace(facts, held_back=held)
