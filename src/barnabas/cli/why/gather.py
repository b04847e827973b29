"""Gather the facts about partitions for `why`, also from metrics listeners."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.cli.admin.held_back import HeldBack, gather_held_back
from barnabas.cli.common.machine_lines import shared_machines
from barnabas.cli.load.metrics import fetch_metrics
from barnabas.cli.partitions.snapshot import PartitionSnapshot, take_snapshots
from barnabas.cli.why.facts import BrokerFacts, PartitionFacts
from barnabas.cli.why.gather_tier import TierMetrics, gather_tier
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition

_FOLLOWER_RATE = "follower.replication.throttled.rate"
_FOLLOWERS = "follower.replication.throttled.replicas"
_LAG_TIME = "replica.lag.time.max.ms"
# Records older than this are reported without an age.
_AGE_MS_MAX = 7 * 86_400_000
_AGE_PRECISION_MS = 100


def gather_brokers(
    client: Client, snapshots: Iterable[PartitionSnapshot], *, rates: bool = False
) -> BrokerFacts:
    """Return the brokers, with those that did not answer requests about their replicas."""
    cluster = client.describe_cluster()
    serving = frozenset(broker.id for broker in cluster.brokers)
    silent = {
        node: end
        for snapshot in snapshots
        for node, end in snapshot.ends.items()
        if isinstance(end, ClientError) and snapshot.is_silent(node)
    }
    try:
        quorum = client.admin.describe_quorum(once=True)
    except ClientError:
        quorum = None
    return BrokerFacts(
        serving,
        frozenset(broker.id for broker in cluster.fenced),
        silent,
        _follower_rates(client, serving - set(silent)) if rates else {},
        quorum.leader_id if quorum is not None and quorum.leader_id >= 0 else None,
        shared_machines(cluster, quorum, silent),
    )


def _follower_rates(client: Client, brokers: Iterable[int]) -> dict[int, int]:
    found = {}
    for node, values in _broker_configs(client, brokers).items():
        rate = values.get(_FOLLOWER_RATE)
        if rate is not None and int(rate) < 2**63 - 1:
            found[node] = int(rate)
    return found


# When partitions that lag are looked at for the second time (s).
_FIRST_LOOK_S = 0.1


def _broker_configs(client: Client, brokers: Iterable[int]) -> dict[int, dict[str, str]]:
    resources = [ConfigResource(ResourceType.BROKER, str(node)) for node in sorted(brokers)]
    return {
        int(resource.name): {e.name: e.value for e in entries if e.value is not None}
        for resource, entries in client.admin.describe_configs(resources).items()
        if not isinstance(entries, ClientError)
    }


def gather_partitions(
    client: Client,
    names: Sequence[str],
    wanted: Iterable[TopicPartition] | None,
    seconds: float,
    metrics: MetricFacts,
) -> list[PartitionFacts]:
    """Take two snapshots of the partitions of the named topics, and gather the facts.

    Args:
        names: Topics; empty means all topics.
        wanted: Partitions to examine; None means all partitions of the topics.
        seconds: Time between the snapshots, if a second one is needed.
        metrics: The facts from metrics listeners.

    Raises:
        ClientError: A topic does not exist, or no broker answers.
    """
    only = None if wanted is None else set(wanted)
    before = _snapshots(client, names, only)
    now, elapsed = before, 0.0
    if any(_may_move(each) for each in before.values()):
        now, elapsed = _later_snapshots(client, names, before, seconds)
    troubled = [each for each in now.values() if each.out_of_sync or _may_move(each)]
    brokers = gather_brokers(client, now.values(), rates=bool(troubled))
    details = _Details(client, brokers, troubled)
    starts = client.admin.list_offsets(dict.fromkeys(_led(now), "earliest"))
    stable = client.admin.list_offsets(dict.fromkeys(_led(now), "latest"), read_committed=True)
    tiers = gather_tier(client, now, metrics.tier)
    facts = []
    for tp, each in now.items():
        start, end = starts.get(tp), stable.get(tp)
        stable_offset = None if end is None or isinstance(end, ClientError) else end.offset
        facts.append(
            PartitionFacts(
                before=before.get(tp, each),
                now=each,
                seconds=elapsed,
                brokers=brokers,
                log_start=None if start is None or isinstance(start, ClientError) else start.offset,
                last_stable_offset=stable_offset,
                held_back=_held_back(client, each, stable_offset),
                failed_directories=details.failed_directories(each),
                throttled_followers=details.throttled(tp),
                lag_time_max_ms=details.lag_time_max_ms(each.state.leader),
                uncommitted_since_ms=details.uncommitted_since_ms(each),
                behind_since_ms=details.behind_since_ms(each),
                now_ms=int(time.time() * 1000),
                waiting_produces=metrics.waiting_produces,
                failed_fetches=metrics.failed_fetches,
                damage=metrics.damage,
                tier=tiers.get(tp),
            )
        )
    return facts


def first_record(client: Client, tp: TopicPartition, offset: int, watermark: int) -> int | None:
    """Return the offset of the first record that a consumer receives from `offset` on.

    Returns:
        None if there is no record below the high watermark.

    Raises:
        ClientError: The records cannot be read, CorruptRecordsError if no consumer can read them.
        TimeoutError: The leader does not send them in time.
    """
    with client.stream({tp: (offset, watermark)}) as stream:
        for record in stream.records():
            return record.offset
    return None


def _snapshots(
    client: Client, names: Sequence[str], only: set[TopicPartition] | None
) -> dict[TopicPartition, PartitionSnapshot]:
    return {
        each.partition: each
        for each in take_snapshots(client, names)
        if only is None or each.partition in only
    }


def _may_move(snapshot: PartitionSnapshot) -> bool:
    """Return whether a second snapshot can give additional information."""
    end, watermark = snapshot.end, snapshot.high_watermark
    behind = end is not None and (not isinstance(watermark, int) or watermark < end)
    return behind or (snapshot.state.leader >= 0 and bool(snapshot.out_of_sync))


def _later_snapshots(
    client: Client,
    names: Sequence[str],
    before: Mapping[TopicPartition, PartitionSnapshot],
    seconds: float,
) -> tuple[dict[TopicPartition, PartitionSnapshot], float]:
    """Take snapshots again until all partitions have made progress, but no longer than `seconds`.

    A partition that is written to is often behind for a moment. It is healthy as soon as its high
    watermark has passed the records of the first snapshot.

    Returns:
        The last snapshots, and the time between them and the first ones (s).
    """
    started, pause = time.monotonic(), min(_FIRST_LOOK_S, seconds)
    waiting = {tp: each for tp, each in before.items() if _may_move(each)}
    while True:
        time.sleep(pause)
        now = _snapshots(client, names, set(before))
        elapsed = time.monotonic() - started
        if elapsed >= seconds or not any(
            _is_held(each, now.get(tp)) for tp, each in waiting.items()
        ):
            return now, elapsed
        pause = min(2 * pause, seconds - elapsed)


def _is_held(before: PartitionSnapshot, now: PartitionSnapshot | None) -> bool:
    """Return whether a partition has not committed the records that it had."""
    if now is None:
        return False
    if now.state.leader >= 0 and now.out_of_sync:
        return True
    watermark = now.high_watermark
    return not isinstance(watermark, int) or (before.end is not None and watermark < before.end)


def _led(snapshots: Mapping[TopicPartition, PartitionSnapshot]) -> list[TopicPartition]:
    """Return the partitions whose leaders answer."""
    return [tp for tp, each in snapshots.items() if each.end is not None]


def _held_back(client: Client, snapshot: PartitionSnapshot, stable: int | None) -> HeldBack | None:
    watermark = snapshot.high_watermark
    if stable is None or not isinstance(watermark, int) or stable >= watermark:
        return None
    return gather_held_back(client, snapshot.partition, stable, watermark)


class _Details:
    """Facts that are only requested for partitions with problems."""

    def __init__(
        self, client: Client, brokers: BrokerFacts, troubled: Sequence[PartitionSnapshot]
    ) -> None:
        self._client = client
        self._brokers = brokers
        self._now_ms = int(time.time() * 1000)
        answering = brokers.serving - set(brokers.silent)
        replicas = {node for each in troubled for node in each.state.replicas} & answering
        self._directories = client.admin.describe_log_dirs(sorted(replicas), once=True)
        leaders = {each.state.leader for each in troubled} & answering
        self._leader_configs = _broker_configs(client, leaders)
        self._followers = self._throttled_followers({each.partition.topic for each in troubled})

    def _throttled_followers(self, topics: Iterable[str]) -> dict[str, str]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(topics)]
        found = {}
        for resource, entries in self._client.admin.describe_configs(resources).items():
            for entry in () if isinstance(entries, ClientError) else entries:
                if entry.name == _FOLLOWERS and entry.value:
                    found[resource.name] = entry.value
        return found

    def throttled(self, tp: TopicPartition) -> frozenset[int]:
        """Return the brokers in the partition's list of throttled followers."""
        value = self._followers.get(tp.topic, "")
        if value == "*":
            return self._brokers.serving
        pairs = (pair.split(":") for pair in value.split(",") if ":" in pair)
        return frozenset(int(node) for number, node in pairs if int(number) == tp.partition)

    def lag_time_max_ms(self, leader: int) -> int:
        """Return the leader's replica.lag.time.max.ms."""
        return int(self._leader_configs.get(leader, {}).get(_LAG_TIME, "30000"))

    def failed_directories(self, snapshot: PartitionSnapshot) -> dict[int, str]:
        """Return the failed log directories of brokers that should have a replica but show none."""
        found = {}
        for node in snapshot.state.replicas:
            directories = self._directories.get(node)
            if directories is None or isinstance(directories, ClientError):
                continue
            failed = [each for each in directories if each.error is not None]
            has_replica = any(snapshot.partition in each.replicas for each in directories)
            if failed and not has_replica:
                found[node] = ", ".join(f"{each.path}: {each.error}" for each in failed)
        return found

    def uncommitted_since_ms(self, snapshot: PartitionSnapshot) -> int | None:
        """Return the time at which the first uncommitted record was written (ms)."""
        watermark, end = snapshot.high_watermark, snapshot.end
        if not isinstance(watermark, int) or end is None or watermark >= end:
            return None
        return self._written_ms(snapshot, watermark)

    def behind_since_ms(self, snapshot: PartitionSnapshot) -> dict[int, int]:
        """Return, for each replica out of sync, the timestamp of the next record it needs (ms)."""
        found = {}
        for node in snapshot.out_of_sync:
            own, end = snapshot.end_of(node), snapshot.end
            if own is not None and end is not None and own < end:
                written = self._written_ms(snapshot, own)
                if written is not None:
                    found[node] = written
        return found

    def _written_ms(self, snapshot: PartitionSnapshot, offset: int) -> int | None:
        """Return the timestamp of the record at `offset`, found by bisection (ms).

        No API returns the timestamp of an uncommitted record. However, a debugging consumer can
        request the first offset at or after a time. None if the record is older than a week or its
        timestamp cannot be determined.
        """
        early, late = self._now_ms - _AGE_MS_MAX, self._now_ms
        if not self._begins_by(snapshot, early, offset):
            return None
        # Invariant: the first record at or after time `early` is not after `offset`; for `late` it
        # is.
        while late - early > _AGE_PRECISION_MS:
            middle = (early + late) // 2
            if self._begins_by(snapshot, middle, offset):
                early = middle
            else:
                late = middle
        return early

    def _begins_by(self, snapshot: PartitionSnapshot, timestamp: int, offset: int) -> bool:
        """Return whether the first record at or after `timestamp` is at `offset` or before it."""
        tp, leader = snapshot.partition, snapshot.state.leader
        answer = self._client.admin.list_replica_offsets({leader: {tp: timestamp}})[leader]
        if isinstance(answer, ClientError):
            return False
        found = answer[tp]
        return not isinstance(found, ClientError) and 0 <= found.offset <= offset


_WAITING = "kafka_server_delayedoperationpurgatory_numdelayedoperations"
_DAMAGE = "barnabas_storage_damage_total"
_FAILED = "kafka_server_replicafetchermanager_failedpartitionscount"


@dataclass(slots=True)
class MetricFacts:
    """Facts by the listener's address; empty if no listener was named or none has such facts."""

    # Number of produce requests that wait for the high watermark.
    waiting_produces: dict[str, int] = field(default_factory=dict)
    # Number of partitions whose fetching failed, until their leadership changes.
    failed_fetches: dict[str, int] = field(default_factory=dict)
    # Kind of damage -> number of damaged places in the broker's files.
    damage: dict[str, dict[str, int]] = field(default_factory=dict)
    tier: TierMetrics = field(default_factory=TierMetrics)


def gather_metrics(addresses: Sequence[str]) -> MetricFacts:
    """Read the metrics listeners at the addresses (HOST:PORT).

    Raises:
        MetricsError: A listener cannot be read.
    """
    facts = MetricFacts()
    for address in addresses:
        found = fetch_metrics(address)
        waiting = sum(
            value
            for labels, value in found.get(_WAITING, {}).items()
            if dict(labels).get("delayedOperation") == "Produce"
        )
        if waiting:
            facts.waiting_produces[address] = int(waiting)
        failed = sum(found.get(_FAILED, {}).values())
        if failed:
            facts.failed_fetches[address] = int(failed)
        damage = {
            dict(labels)["kind"]: int(value)
            for labels, value in found.get(_DAMAGE, {}).items()
            if value
        }
        if damage:
            facts.damage[address] = damage
        facts.tier.read(address, found)
    return facts
