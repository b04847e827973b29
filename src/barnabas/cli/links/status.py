"""The current state of links: their mirrors, conflicts, and the groups whose offsets they copy."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.links.mirrors import find_lags, read_table
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition
from barnabas.replication.links.link_table import COPIED_TYPES, REVERSED, MirrorState
from barnabas.replication.links.source_offsets import GROUPS_COPIED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.cli.links.mirrors import PartitionLag
    from barnabas.client.connections.metadata_cache import NodeInfo
    from barnabas.client.facade import Client
    from barnabas.replication.links.link_table import LinkDefinition, LinkTable, MirrorTopic

# A source that is idle responds twice a second. After this time, it is not reachable.
SILENCE_S = 60.0
_SETTLE_S = 3.0
_SETTLE_POLL_S = 0.5
# A config of the brokers that have links.
_OWN_CONFIG = "barnabas.log.level"
OFFSETS_TOPIC = "__consumer_offsets"
_MS_PER_S = 1000.0


class MirrorStatus(NamedTuple):
    """One mirror topic with its partitions."""

    mirror: MirrorTopic
    # Empty for topics that are no mirrors any more, and for those that are not created yet.
    partitions: Sequence[PartitionLag]

    @property
    def lag(self) -> int | None:
        """Number of records that the mirror does not have; None if not known."""
        lags = [each.lag for each in self.partitions if each.lag is not None]
        return sum(lags) if lags and len(lags) == len(self.partitions) else None

    def behind_s(self, now_ms: float) -> float | None:
        """Seconds since the mirror had all records; None if not known."""
        times = [each.lag_s(int(now_ms)) for each in self.partitions]
        known = [each for each in times if each is not None]
        return max(known) if known and len(known) == len(times) else None

    @property
    def is_missing(self) -> bool:
        """Whether the topic is not created yet."""
        return self.mirror.is_read_only and not self.partitions


class GroupCopy(NamedTuple):
    """A group of this cluster whose offsets a link copies."""

    group: str
    # The state at its coordinator. Offsets of groups with members are not copied.
    state: str
    # When the source's offsets were read last (ms since the epoch); None if not known.
    copied_ms: int | None

    @property
    def has_members(self) -> bool:
        """Whether consumers of this cluster are members, so that nothing is copied."""
        return self.state not in {"", "Empty", "Dead"}


class LinkStatus(NamedTuple):
    """One link, as the brokers with its mirrors know it."""

    link: LinkDefinition
    mirrors: Sequence[MirrorStatus]
    groups: Sequence[GroupCopy]
    # The time of the reading (ms since the epoch).
    now_ms: float

    @property
    def source(self) -> str:
        """The addresses of the source cluster."""
        return self.link.client.get("bootstrap.servers", "")

    @property
    def state(self) -> str:
        """One of "invalid", "reversed", "paused", "unreachable" and "active"."""
        if self.link.problem:
            return "invalid"
        if self.link.is_reversed:
            return REVERSED
        if self.link.is_paused:
            return "paused"
        return "unreachable" if self.silent else "active"

    def count(self, state: MirrorState) -> int:
        """Return the number of topics in a state."""
        return sum(each.mirror.state is state for each in self.mirrors)

    @property
    def lag(self) -> int | None:
        """Records that all mirrors together do not have; None if one lag is not known."""
        lags = [each.lag for each in self.fetched]
        known = [each for each in lags if each is not None]
        return sum(known) if len(known) == len(lags) else None

    @property
    def behind_s(self) -> float | None:
        """Seconds that the mirror with the longest time is behind; None if one is not known."""
        times = [each.behind_s(self.now_ms) for each in self.fetched]
        known = [each for each in times if each is not None]
        return max(known, default=0.0) if len(known) == len(times) else None

    @property
    def fetched(self) -> list[MirrorStatus]:
        """The mirrors that are fetched unless the link is paused."""
        return [each for each in self.mirrors if each.mirror.state is MirrorState.ACTIVE]

    @property
    def silent(self) -> list[PartitionLag]:
        """The partitions without a response of the source for a minute."""
        return [
            lag
            for each in self.fetched
            for lag in each.partitions
            if lag.responded_ms is not None
            and self.now_ms - lag.responded_ms > SILENCE_S * _MS_PER_S
        ]

    @property
    def unanswered(self) -> list[PartitionLag]:
        """The partitions whose leader has no response of the source yet."""
        if self.link.is_paused or self.link.problem:
            return []
        return [
            lag
            for each in self.fetched
            for lag in each.partitions
            if lag.responded_ms is None and not lag.error
        ]


def may_have_links(client: Client, brokers: Iterable[NodeInfo]) -> bool | None:
    """Return whether the brokers have links: those of Apache Kafka do not have this config.

    Returns:
        None if the client may not describe configs of brokers.
    """
    node = next((str(each.id) for each in brokers), "")
    resource = ConfigResource(ResourceType.BROKER, node)
    found = client.admin.describe_configs([resource], keys=[_OWN_CONFIG])
    described = [each for each in found.values() if not isinstance(each, ClientError)]
    if not described:
        return None
    return any(entry.name == _OWN_CONFIG for entries in described for entry in entries)


def load_links(
    client: Client, *, topic: str | None = None, with_groups: bool = True
) -> list[LinkStatus]:
    """Return the state of all links, or of the link of one mirror with that mirror only."""
    table = read_table(client)
    mirror = None if topic is None else table.mirrors.get(topic)
    if topic is None:
        return [load_link(client, table, name, with_groups=with_groups) for name in table.links]
    if mirror is None or mirror.link not in table.links:
        return []
    statuses = mirror_statuses(client, [mirror])
    return [LinkStatus(table.links[mirror.link], statuses, (), time.time() * _MS_PER_S)]


def load_settled_links(client: Client, topic: str | None = None) -> list[LinkStatus]:
    """Return the state of links, see `load_links`, after the first responses of their sources.

    A leader that has just begun to fetch has no response yet. It is waited for some seconds.
    """
    deadline_s = time.monotonic() + _SETTLE_S
    while True:
        found = load_links(client, topic=topic)
        if not any(each.unanswered for each in found) or time.monotonic() >= deadline_s:
            return found
        time.sleep(_SETTLE_POLL_S)


def load_link(
    client: Client, table: LinkTable, name: str, *, with_groups: bool = True
) -> LinkStatus:
    """Return the state of one link of the table."""
    link = table.links[name]
    mirrors = list(table.mirrors_of(name))
    groups = find_copies(client, link) if with_groups else []
    return LinkStatus(link, mirror_statuses(client, mirrors), groups, time.time() * _MS_PER_S)


def mirror_statuses(client: Client, mirrors: Sequence[MirrorTopic]) -> list[MirrorStatus]:
    """Return the mirror topics with the lag of their partitions."""
    lags: dict[str, list[PartitionLag]] = {}
    for each in find_lags(client, [mirror for mirror in mirrors if mirror.is_read_only]):
        lags.setdefault(each.topic, []).append(each)
    return [
        MirrorStatus(each, sorted(lags.get(each.topic, ()), key=lambda lag: lag.partition))
        for each in mirrors
    ]


def find_copies(client: Client, link: LinkDefinition) -> list[GroupCopy]:
    """Return the groups of this cluster that match, with the time of the last copy.

    Groups appear with the first copy of their offsets.
    """
    from barnabas.coordinator.runtime.coordinator_runtime import partition_for

    if link.groups is None:
        return []
    found = client.admin.list_groups()
    groups = [
        each
        for each in found
        if each.type.lower() in COPIED_TYPES and link.groups.matches(each.group_id)
    ]
    described = client.admin.describe_topic_partitions([OFFSETS_TOPIC])[OFFSETS_TOPIC]
    if not groups or isinstance(described, ClientError):
        return []
    count = len(described.partitions)
    places = {each.group_id: partition_for(each.group_id, count) for each in groups}
    times = _copy_times(client, places.values())
    return [
        GroupCopy(each.group_id, each.state, times.get(places[each.group_id])) for each in groups
    ]


def _copy_times(client: Client, partitions: Iterable[int]) -> Mapping[int, int]:
    """Return when the groups of state partitions were copied, without those never copied."""
    keys = {TopicPartition(OFFSETS_TOPIC, each): GROUPS_COPIED for each in set(partitions)}
    return {
        key.partition: each.timestamp
        for key, each in client.admin.list_offsets(keys).items()
        if not isinstance(each, ClientError) and each.timestamp >= 0
    }
