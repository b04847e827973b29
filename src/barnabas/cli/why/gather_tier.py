"""Gather the facts about the remote tier of topics for `why`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from barnabas.cli.why.tier_reasons import TierFacts, UnreadableSpan, WaitingCopy
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition
from barnabas.storage.remote_keys import REMOTE_LOG_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.cli.load.metrics import Labels
    from barnabas.cli.partitions.snapshot import PartitionSnapshot
    from barnabas.client.facade import Client
    from barnabas.client.fetch.offset_lookups import ListedOffset

_ENABLED, _DISABLED = "remote.storage.enable", "remote.log.copy.disable"
_LOCAL_BYTES, _BYTES = "local.retention.bytes", "retention.bytes"
_SEGMENT_BYTES, _INTERNAL_BYTES = "segment.bytes", "internal.segment.bytes"
_KEYS = (_DISABLED, _LOCAL_BYTES, _BYTES, _SEGMENT_BYTES, _INTERNAL_BYTES)
# Value of local.retention.bytes: as retention.bytes.
_AS_TOTAL = -2

_WAITING = "barnabas_remote_segment_waiting_seconds"
_WAITING_OFFSET = "barnabas_remote_segment_waiting_offset"
_FIRST = "barnabas_remote_unreadable_first_offset"
_LAST = "barnabas_remote_unreadable_last_offset"
_PROBLEM = "barnabas_remote_metadata_problem"


@dataclass(slots=True)
class TierMetrics:
    """What metrics listeners say about the remote tier."""

    waiting: dict[TopicPartition, WaitingCopy] = field(default_factory=dict)
    unreadable: dict[TopicPartition, list[UnreadableSpan]] = field(default_factory=dict)
    # Metrics listener and the problem of the metadata topic.
    problems: list[tuple[str, str]] = field(default_factory=list)

    def read(self, address: str, found: Mapping[str, Mapping[Labels, float]]) -> None:
        """Take over the metrics of one listener."""
        offsets = {_partition(dict(each)): n for each, n in found.get(_WAITING_OFFSET, {}).items()}
        for labels, seconds in found.get(_WAITING, {}).items():
            values = dict(labels)
            tp = _partition(values)
            offset = offsets.get(tp)
            self.waiting[tp] = WaitingCopy(
                address, values["cause"], seconds, None if offset is None else int(offset)
            )
        last = found.get(_LAST, {})
        for labels, first in found.get(_FIRST, {}).items():
            if labels in last:
                values = dict(labels)
                span = UnreadableSpan(address, values["kind"], int(first), int(last[labels]))
                self.unreadable.setdefault(_partition(values), []).append(span)
        for labels, value in found.get(_PROBLEM, {}).items():
            if value:
                self.problems.append((address, dict(labels)["problem"]))


def _partition(labels: Mapping[str, str]) -> TopicPartition:
    return TopicPartition(labels["topic"], int(labels["partition"]))


def gather_tier(
    client: Client, snapshots: Mapping[TopicPartition, PartitionSnapshot], metrics: TierMetrics
) -> dict[TopicPartition, TierFacts]:
    """Return the facts about the remote tier of those partitions that have one and a leader.

    A cluster without the metadata topic has no tiers, and gets no further requests.
    """
    led = {tp: each for tp, each in snapshots.items() if each.end is not None}
    if not led or REMOTE_LOG_TOPIC not in client.topics(internal=True):
        return {}
    configs = tiered_topics(client, {tp.topic for tp in led}, _KEYS)
    tiered = {tp: each for tp, each in led.items() if tp.topic in configs}
    if not tiered:
        return {}
    offsets = [
        _offsets(client, tiered, spec) for spec in ("earliest", "earliest-local", "latest-tiered")
    ]
    sizes = _local_sizes(client, tiered)
    facts = {}
    for tp, each in tiered.items():
        values = configs[tp.topic]
        log_start, local_start, last_copied = (found.get(tp) for found in offsets)
        found = TierFacts(
            partition=tp,
            leader=each.state.leader,
            copies_disabled=values.get(_DISABLED) == "true",
            local_retention_bytes=_local_retention(values),
            segment_bytes=_number(
                values, _INTERNAL_BYTES, _number(values, _SEGMENT_BYTES, 1 << 30)
            ),
            log_start=log_start,
            local_start=local_start,
            last_copied=last_copied,
            local_bytes=sizes.get(tp),
        )
        facts[tp] = with_metrics(found, metrics)
    return facts


def with_metrics(facts: TierFacts, metrics: TierMetrics) -> TierFacts:
    """Return the facts with what metrics listeners say about the partition."""
    tp = facts.partition
    return replace(
        facts,
        waiting=metrics.waiting.get(tp),
        unreadable=metrics.unreadable.get(tp, ()),
        metadata_problems=metrics.problems,
    )


def tiered_topics(
    client: Client, names: Iterable[str], keys: Iterable[str]
) -> dict[str, dict[str, str]]:
    """Return some configs of those topics that have a tier."""
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(names)]
    found = {}
    for resource, entries in client.admin.describe_configs(
        resources, keys=(_ENABLED, *keys)
    ).items():
        if isinstance(entries, ClientError):
            continue
        values = {each.name: each.value for each in entries if each.value is not None}
        if values.get(_ENABLED) == "true":
            found[resource.name] = values
    return found


def _offsets(
    client: Client, partitions: Iterable[TopicPartition], spec: str
) -> dict[TopicPartition, int]:
    """Return the known offsets. A broker that does not know the timestamp reports none."""
    try:
        found: Mapping[TopicPartition, ListedOffset | ClientError] = client.admin.list_offsets(
            dict.fromkeys(partitions, spec)
        )
    except ClientError:
        return {}
    return {
        tp: each.offset
        for tp, each in found.items()
        if not isinstance(each, ClientError) and each.offset >= 0
    }


def _local_sizes(
    client: Client, partitions: Mapping[TopicPartition, PartitionSnapshot]
) -> dict[TopicPartition, int]:
    """Return the bytes of the partitions on the disks of their leaders."""
    leaders = {each.state.leader for each in partitions.values()}
    answers = client.admin.describe_log_dirs(sorted(leaders), list(partitions), once=True)
    found = {}
    for node, directories in answers.items():
        for directory in () if isinstance(directories, ClientError) else directories:
            for tp, replica in directory.replicas.items():
                is_leader = tp in partitions and partitions[tp].state.leader == node
                if is_leader and not replica.is_future:
                    found[tp] = replica.size
    return found


def _local_retention(values: Mapping[str, str]) -> int:
    local = _number(values, _LOCAL_BYTES, _AS_TOTAL)
    return _number(values, _BYTES, -1) if local == _AS_TOTAL else local


def _number(values: Mapping[str, str], key: str, default: int) -> int:
    return int(values[key]) if key in values else default
