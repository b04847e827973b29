"""What a cluster knows of its links: definitions, mirror topics and the lag of their partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition
from barnabas.metadata.configs_image import ALL_BROKERS
from barnabas.replication.links.link_table import (
    LINK_SETTINGS,
    LinkTable,
    MirrorState,
    MirrorTopic,
    is_setting,
    link_prefix,
    read_links,
    report_name,
    setting_name,
)
from barnabas.replication.links.source_offsets import SOURCE_END, SOURCE_LAG

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.client.facade import Client
    from barnabas.client.fetch.offset_lookups import ListedOffset
    from barnabas.replication.links.link_table import LinkDefinition

ALL_BROKERS_RESOURCE = ConfigResource(ResourceType.BROKER, ALL_BROKERS)


class PartitionLag(NamedTuple):
    """One mirror partition, as its leader knows it."""

    topic: str
    partition: int
    # Log end offset of the mirror, and the source's high watermark; None if not known.
    end: int | None
    source_end: int | None
    # Times (ms since the epoch) of the source's last response, and of the last one without lag.
    responded_ms: int | None
    caught_up_ms: int | None
    # The largest timestamp of the mirror's records (ms since the epoch); None without records.
    last_record_ms: int | None = None
    # Why the values are not known.
    error: str = ""

    @property
    def lag(self) -> int | None:
        """Number of records that the mirror does not have; None if not known."""
        if self.end is None or self.source_end is None:
            return None
        return max(0, self.source_end - self.end)

    def lag_s(self, now_ms: int) -> float | None:
        """Seconds since the mirror had all records; 0 if it has them, None if not known.

        A mirror that never had all records is behind by the age of its last record.
        """
        if self.lag == 0:
            return 0.0
        since_ms = self.last_record_ms if self.caught_up_ms is None else self.caught_up_ms
        return None if since_ms is None else max(0.0, (now_ms - since_ms) / 1000)


def read_table(client: Client) -> LinkTable:
    """Return the links and mirror topics of the cluster. Secrets are missing."""
    return read_links({name: value or "" for name, value in _configs(client).items()})


def read_settings(client: Client, link: str) -> dict[str, str | None]:
    """Return the settings of a link by their keys; None for a secret. Empty without the link."""
    prefix = link_prefix(link)
    return {
        name.removeprefix(prefix): value
        for name, value in _configs(client).items()
        if name.startswith(prefix) and is_setting(name)
    }


def _configs(client: Client) -> dict[str, str | None]:
    """Return the configs of all brokers; None for a secret."""
    found = client.admin.describe_configs([ALL_BROKERS_RESOURCE])[ALL_BROKERS_RESOURCE]
    if isinstance(found, ClientError):
        raise found
    return {entry.name: entry.value for entry in found}


def change(client: Client, changes: Mapping[str, str | None]) -> None:
    """Change settings of links and states of mirrors."""
    client.admin.alter_configs(ALL_BROKERS_RESOURCE, changes)


def set_states(client: Client, mirrors: Iterable[MirrorTopic], state: MirrorState) -> None:
    """Set the state of mirrors, and forget why they have stopped."""
    changed = [replace(each, state=state, reason="") for each in mirrors]
    if changed:
        change(client, {each.config_name: each.config_value for each in changed})


def delete_link(client: Client, link: LinkDefinition, mirrors: Iterable[MirrorTopic]) -> None:
    """Delete the settings of a link and the states of its mirrors, which become topics."""
    settings = [*link.client, *sorted(LINK_SETTINGS)]
    changes: dict[str, str | None] = {setting_name(link.name, key): None for key in settings}
    changes |= dict.fromkeys(link.acls)
    changes |= {report_name(link.name, broker_id): None for broker_id in link.reports}
    changes |= {each.config_name: None for each in mirrors}
    change(client, changes)


def find_lags(
    client: Client, mirrors: Iterable[MirrorTopic], *, with_times: bool = True
) -> list[PartitionLag]:
    """Return the lag of each partition of the mirror topics, from its leader.

    Args:
        client: the client of the mirrors' cluster.
        mirrors: the mirror topics.
        with_times: whether to find the times for `PartitionLag.lag_s` too. A leader may have to
            read records for the largest timestamp.
    """
    names = [each.topic for each in mirrors]
    if not names:
        return []
    described = client.admin.describe_topic_partitions(names)
    partitions = [
        TopicPartition(name, each)
        for name, topic in described.items()
        if not isinstance(topic, ClientError)
        for each in topic.partitions
    ]
    ends = client.admin.list_offsets(dict.fromkeys(partitions, "latest"))
    sources = client.admin.list_offsets(dict.fromkeys(partitions, SOURCE_END))
    timed = partitions if with_times else []
    lags = client.admin.list_offsets(dict.fromkeys(timed, SOURCE_LAG))
    last = client.admin.list_offsets(dict.fromkeys(timed, "max-timestamp"))
    found: list[PartitionLag] = []
    for key in partitions:
        end, source = ends[key], sources[key]
        error = next((str(each) for each in (end, source) if isinstance(each, ClientError)), "")
        found.append(
            PartitionLag(
                key.topic,
                key.partition,
                None if isinstance(end, ClientError) else end.offset,
                None if isinstance(source, ClientError) or source.offset < 0 else source.offset,
                _time(source),
                _time(lags.get(key)),
                _time(last.get(key)),
                error,
            )
        )
    return found


def _time(found: ListedOffset | ClientError | None) -> int | None:
    """Return the time of a result; None if it was not asked for, or is not known."""
    if found is None or isinstance(found, ClientError) or found.timestamp < 0:
        return None
    return found.timestamp
