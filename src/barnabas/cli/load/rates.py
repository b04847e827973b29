"""Samples of a cluster by Kafka's protocol and metrics listeners, and the rates between two."""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from barnabas.cli.admin.group_lag import end_offsets, group_progress
from barnabas.cli.admin.quorum import NO_QUORUM_LEADER, quorum_state
from barnabas.cli.common.machine_lines import shared_machines
from barnabas.cli.load.lag_age import oldest
from barnabas.cli.load.metrics import (
    MetricsError,
    PrincipalMetrics,
    scrape,
    scrape_queries,
)
from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition
from barnabas.server.listeners.client_traffic import NO_TRAFFIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from barnabas.cli.admin.group_lag import PartitionProgress
    from barnabas.cli.common.machine_lines import Machine
    from barnabas.cli.load.lag_age import LagAges
    from barnabas.cli.load.metrics import BrokerMetrics, QuerySample
    from barnabas.client.admin.log_dirs import LogDirectory
    from barnabas.client.connections.metadata_cache import TopicInfo
    from barnabas.client.facade import Client
    from barnabas.server.listeners.client_traffic import ClientKey, Traffic

    Directories = Mapping[int, Sequence[LogDirectory] | ClientError]

_MS_PER_S = 1000.0


@dataclass(frozen=True, slots=True)
class TopicSample:
    """A topic at the time of the sample."""

    partitions: int
    # Number of partitions without a leader, or with a replica that is out of sync.
    unwell: int
    # Sum of the end offsets of the partitions; increases by one with each record.
    end_offsets: int
    # Bytes of one copy of each partition; None if the brokers do not report it.
    log_bytes: int | None
    # End offsets by partition, of those with a leader.
    ends: Mapping[int, int] = field(default_factory=dict)
    # Replicas of the partition that has the most.
    replicas: int = 0


@dataclass(frozen=True, slots=True)
class GroupSample:
    """A group at the time of the sample."""

    state: str
    members: int
    lag: int
    # Age of the oldest uncommitted record (s); None if it is unknown.
    lag_seconds: float | None = None
    # "classic", "consumer", "share" or "streams"; "" if it is unknown.
    type: str = ""
    # Offsets, lags and members by partition; ages as `lag_seconds` by topic.
    partitions: tuple[PartitionProgress, ...] = ()
    topic_seconds: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeSample:
    """A broker at the time of the sample; None for what it does not report."""

    # Partitions that it leads, and replicas on it that are out of sync.
    leaders: int
    out_of_sync: int
    replicas: int | None
    # Sums over its log directories; free and total are of their file systems.
    used_bytes: int | None
    free_bytes: int | None
    total_bytes: int | None
    # Errors of its log directories; "" if there are none.
    error: str


@dataclass(frozen=True, slots=True)
class Sample:
    """All facts of one sample."""

    # Monotonic time (s).
    at: float
    cluster_id: str
    brokers: int
    topics: dict[str, TopicSample]
    groups: dict[str, GroupSample]
    # Number of all groups, including those that are not in `groups`.
    group_count: int
    # By the address of the metrics listener.
    metrics: dict[str, BrokerMetrics]
    # By the address of the driver, then by name; None if the driver does not answer.
    queries: dict[str, dict[str, QuerySample] | None] = field(default_factory=dict)
    # Addresses of metrics listeners that answered before, and do not now.
    silent: tuple[str, ...] = ()
    # By broker id.
    nodes: dict[int, NodeSample] = field(default_factory=dict)
    # The machines; empty if each broker has its own.
    machines: Sequence[Machine] = ()


class Sampler:
    """Takes samples of one cluster.

    Args:
        metrics: Addresses of metrics listeners, one per broker.
        queries: Addresses of drivers of Spark that serve metrics of their queries.
        internal: Whether to include internal topics.
        groups: Maximum number of groups to describe.
        ages: Finds the lag of groups in seconds; None to leave it out.
    """

    def __init__(
        self,
        client: Client,
        metrics: Sequence[str],
        queries: Sequence[str],
        *,
        internal: bool,
        groups: int,
        ages: LagAges | None = None,
    ) -> None:
        self._client = client
        self._ages = ages
        self._metrics = tuple(metrics)
        # Those of `_metrics` that have answered.
        self._answered: set[str] = set()
        self._queries = tuple(queries)
        self._internal = internal
        self._groups_max = groups

    def take(self) -> Sample:
        """Take one sample.

        Raises:
            ClientError: The cluster does not answer, or its quorum has no leader.
            MetricsError: A metrics listener has never answered.
        """
        client = self._client
        quorum = quorum_state(client)
        if quorum.is_lost:
            # Without a controller, metadata is outdated and dead brokers are not fenced.
            raise ClientError(f"{NO_QUORUM_LEADER}; barnabas doctor shows the voters that are down")
        cluster = client.describe_cluster()
        topics = {
            name: topic
            for name, topic in client.describe_topics().items()
            if self._internal or not topic.is_internal
        }
        groups, count = self._groups()
        ends = self._ends(topics)
        at = time.monotonic()
        directories = client.admin.describe_log_dirs(broker.id for broker in cluster.brokers)
        sizes = _sizes(directories)
        metrics, silent = self._scraped()
        return Sample(
            at=at,
            cluster_id=cluster.cluster_id,
            brokers=len(cluster.brokers),
            machines=shared_machines(cluster, quorum.description),
            topics={name: _topic_sample(topic, ends, sizes) for name, topic in topics.items()},
            groups=groups,
            group_count=count,
            metrics=metrics,
            silent=silent,
            queries={address: scrape_queries(address) for address in self._queries},
            nodes=_nodes(topics.values(), directories),
        )

    def _scraped(self) -> tuple[dict[str, BrokerMetrics], tuple[str, ...]]:
        """Return the metrics, and the addresses that answered before and do not now."""
        found: dict[str, BrokerMetrics] = {}
        silent = []
        for address in self._metrics:
            try:
                found |= scrape(address)
                self._answered.add(address)
            except MetricsError:
                # A broker that has stopped does not hide the others.
                if address not in self._answered:
                    raise
                silent.append(address)
        return found, tuple(silent)

    def _ends(self, topics: dict[str, TopicInfo]) -> dict[TopicPartition, int]:
        wanted = [TopicPartition(name, n) for name, t in topics.items() for n in t.available]
        return end_offsets(self._client, wanted)

    def _groups(self) -> tuple[dict[str, GroupSample], int]:
        names = [group.group_id for group in self._client.admin.list_groups()]
        found = {
            name: each
            for name, each in group_progress(self._client, names[: self._groups_max]).items()
            if not isinstance(each, ClientError)
        }
        ages = None if self._ages is None else self._ages.by_topic(found)
        return {
            name: GroupSample(
                each.description.state,
                len(each.description.members),
                each.lag,
                None if ages is None else oldest(ages[name]),
                each.description.type,
                each.partitions,
                {} if ages is None else ages[name],
            )
            for name, each in found.items()
        }, len(names)


def _sizes(directories: Directories) -> dict[TopicPartition, int] | None:
    """Return the bytes of the largest replica of each partition."""
    sizes: dict[TopicPartition, int] = {}
    for found in directories.values():
        if isinstance(found, ClientError):
            return None
        for directory in found:
            for tp, replica in directory.replicas.items():
                sizes[tp] = max(replica.size, sizes.get(tp, 0))
    return sizes


def _nodes(topics: Iterable[TopicInfo], directories: Directories) -> dict[int, NodeSample]:
    leaders: Counter[int] = Counter()
    out_of_sync: Counter[int] = Counter()
    for topic in topics:
        for partition in topic.partitions.values():
            leaders[partition.leader] += 1
            if len(partition.isr) < len(partition.replicas):
                out_of_sync.update(set(partition.replicas) - set(partition.isr))
    return {
        node: _node(leaders[node], out_of_sync[node], found) for node, found in directories.items()
    }


def _node(
    leaders: int, out_of_sync: int, directories: Sequence[LogDirectory] | ClientError
) -> NodeSample:
    if isinstance(directories, ClientError):
        return NodeSample(leaders, out_of_sync, None, None, None, None, str(directories))
    knows_space = all(each.usable_bytes >= 0 for each in directories if not each.error)
    return NodeSample(
        leaders,
        out_of_sync,
        replicas=sum(len(each.replicas) for each in directories),
        used_bytes=sum(own.size for each in directories for own in each.replicas.values()),
        free_bytes=sum(max(0, e.usable_bytes) for e in directories) if knows_space else None,
        total_bytes=sum(max(0, e.total_bytes) for e in directories) if knows_space else None,
        error="; ".join(f"{each.path}: {each.error}" for each in directories if each.error),
    )


def _topic_sample(
    topic: TopicInfo, ends: dict[TopicPartition, int], sizes: dict[TopicPartition, int] | None
) -> TopicSample:
    partitions = [TopicPartition(topic.name, number) for number in topic.partitions]
    unwell = sum(p.leader < 0 or len(p.isr) < len(p.replicas) for p in topic.partitions.values())
    return TopicSample(
        len(partitions),
        unwell,
        sum(ends.get(tp, 0) for tp in partitions),
        None if sizes is None else sum(sizes.get(tp, 0) for tp in partitions),
        {tp.partition: ends[tp] for tp in partitions if tp in ends},
        max((len(each.replicas) for each in topic.partitions.values()), default=0),
    )


@dataclass(frozen=True, slots=True)
class TopicRates:
    """The rates of a topic per second; None for unknown values."""

    partitions: int
    unwell: int
    records_in: float
    bytes_in: float | None
    bytes_out: float | None
    log_bytes: int | None

    def as_json(self) -> dict[str, Any]:
        """Return the rates ready for JSON."""
        return {
            "partitions": self.partitions,
            "unwell": self.unwell,
            "records_in_per_s": round(self.records_in, 3),
            "bytes_in_per_s": _rounded(self.bytes_in),
            "bytes_out_per_s": _rounded(self.bytes_out),
            "log_bytes": self.log_bytes,
        }


@dataclass(frozen=True, slots=True)
class BrokerRates:
    """The load of a broker, from its metrics listener."""

    requests: float
    # CPU use, in cores.
    cpu: float | None
    resident_bytes: int | None
    connections: int | None
    open_files: int | None
    purgatories: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """Return the load ready for JSON."""
        return {
            "requests_per_s": round(self.requests, 3),
            "cpu": _rounded(self.cpu),
            "resident_bytes": self.resident_bytes,
            "connections": self.connections,
            "open_files": self.open_files,
            "purgatories": self.purgatories,
        }


@dataclass(frozen=True, slots=True)
class ApiRates:
    """The requests of one API to all brokers."""

    requests: float
    # Times (ms) below which half of the requests and 99 % of them stayed; None without requests.
    p50_ms: float | None
    p99_ms: float | None

    def as_json(self) -> dict[str, Any]:
        """Return the rates ready for JSON."""
        return {
            "requests_per_s": round(self.requests, 3),
            "p50_ms": _rounded(self.p50_ms),
            "p99_ms": _rounded(self.p99_ms),
        }


@dataclass(frozen=True, slots=True)
class ClientRates:
    """The traffic of one client with all brokers, per second."""

    requests: float
    bytes_in: float
    bytes_out: float

    def as_json(self) -> dict[str, Any]:
        """Return the rates ready for JSON."""
        return {
            "requests_per_s": round(self.requests, 3),
            "bytes_in_per_s": round(self.bytes_in, 3),
            "bytes_out_per_s": round(self.bytes_out, 3),
        }


@dataclass(frozen=True, slots=True)
class Rates:
    """Everything that `top` shows."""

    seconds: float
    cluster_id: str
    brokers: int
    topics: dict[str, TopicRates]
    groups: dict[str, GroupSample]
    # Group -> growth of its lag in records per second.
    lag_growth: dict[str, float]
    group_count: int
    # By the address of the metrics listener.
    processes: dict[str, BrokerRates]
    # Sums over all brokers by principal; empty if all clients are anonymous.
    principals: dict[str, PrincipalMetrics]
    # By the address of the driver, then by name; None if the driver does not answer.
    queries: dict[str, dict[str, QuerySample] | None]
    apis: dict[str, ApiRates]
    clients: dict[ClientKey, ClientRates]
    # Addresses of metrics listeners that do not answer any more.
    silent: tuple[str, ...]
    machines: Sequence[Machine] = ()

    def kinds(self) -> tuple[Mapping[Any, object], ...]:
        """Return everything by name, kind by kind."""
        return (
            self.apis, self.clients, self.topics, self.groups,
            self.processes, self.principals, self.queries,
        )  # fmt: skip

    @property
    def records_in(self) -> float:
        """Records per second of all topics."""
        return sum(topic.records_in for topic in self.topics.values())

    def total(self, of: Callable[[TopicRates], float | None]) -> float | None:
        """Return the sum over all topics; None if the value of a topic is unknown."""
        values = [of(topic) for topic in self.topics.values()]
        return None if any(value is None for value in values) else sum(v or 0.0 for v in values)

    def as_json(self) -> dict[str, Any]:
        """Return the rates ready for JSON."""
        return {
            "cluster": self.cluster_id,
            "seconds": round(self.seconds, 3),
            "brokers": self.brokers,
            "machines": [machine.as_json() for machine in self.machines],
            "records_in_per_s": round(self.records_in, 3),
            "topics": {name: each.as_json() for name, each in self.topics.items()},
            "groups": {name: self._group_as_json(name) for name in self.groups},
            "processes": {address: each.as_json() for address, each in self.processes.items()},
            "silent": list(self.silent),
            "principals": {
                name: {
                    "connections": principal.connections,
                    "listeners": sorted(principal.listeners),
                    "throttle_ms": _rounded(principal.throttle_ms),
                }
                for name, principal in self.principals.items()
            },
            "apis": {name: each.as_json() for name, each in self.apis.items()},
            "clients": [{**key._asdict(), **each.as_json()} for key, each in self.clients.items()],
            "queries": {
                address: None
                if queries is None
                else {name: each.as_json() for name, each in queries.items()}
                for address, queries in self.queries.items()
            },
        }

    def _group_as_json(self, name: str) -> dict[str, Any]:
        group = self.groups[name]
        return {
            "state": group.state,
            "members": group.members,
            "lag": group.lag,
            "lag_s": _rounded(group.lag_seconds),
            "lag_growth_per_s": round(self.lag_growth.get(name, 0.0), 3),
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def rates_between(before: Sample, after: Sample) -> Rates:
    """Compute the rates between two samples."""
    seconds = max(after.at - before.at, 1e-6)
    growth = {
        name: (group.lag - before.groups[name].lag) / seconds
        for name, group in after.groups.items()
        if name in before.groups
    }
    return Rates(
        seconds=seconds,
        cluster_id=after.cluster_id,
        brokers=after.brokers,
        machines=after.machines,
        topics={name: _topic(name, before, after, seconds) for name in sorted(after.topics)},
        groups=after.groups,
        lag_growth=growth,
        group_count=after.group_count,
        processes={
            address: _process(before.metrics.get(address), metrics, seconds)
            for address, metrics in after.metrics.items()
        },
        principals=_principals(after),
        queries=after.queries,
        apis=_apis(before, after, seconds),
        clients=rates_of_clients(before.metrics, after.metrics, seconds),
        silent=after.silent,
    )


def _apis(before: Sample, after: Sample, seconds: float) -> dict[str, ApiRates]:
    """Return rates and percentiles of the requests between the samples."""
    grown: dict[str, dict[float, float]] = {}
    for address, metrics in after.metrics.items():
        earlier = before.metrics.get(address)
        if earlier is None:
            continue
        for name, now in metrics.request_times.items():
            then = earlier.request_times.get(name, {})
            if then.get(math.inf, 0.0) > now.get(math.inf, 0.0):
                # The broker has restarted.
                then = {}
            sums = grown.setdefault(name, {})
            for bound, number in now.items():
                sums[bound] = sums.get(bound, 0.0) + max(0.0, number - then.get(bound, 0.0))
    return {
        name: ApiRates(
            numbers.get(math.inf, 0.0) / seconds,
            _quantile_ms(numbers, 0.5),
            _quantile_ms(numbers, 0.99),
        )
        for name, numbers in grown.items()
        if numbers.get(math.inf)
    }


def _quantile_ms(numbers: dict[float, float], fraction: float) -> float | None:
    """Return a quantile (ms), interpolated within its bucket as Prometheus does.

    Args:
        numbers: by bound (s), the number of requests whose time was below it.
        fraction: the fraction of the requests.
    """
    rank = fraction * numbers[math.inf]
    lower, below = 0.0, 0.0
    for bound, number in sorted(numbers.items()):
        if number >= rank and number > below:
            if bound == math.inf:
                return lower * _MS_PER_S
            return (lower + (bound - lower) * (rank - below) / (number - below)) * _MS_PER_S
        lower, below = bound, number
    return None


def rates_of_clients(
    before: Mapping[str, BrokerMetrics], after: Mapping[str, BrokerMetrics], seconds: float
) -> dict[ClientKey, ClientRates]:
    """Return the rates of clients between two scrapes of the same listeners, by their address."""
    sums: dict[ClientKey, Traffic] = {}
    for address, metrics in after.items():
        earlier = before.get(address)
        if earlier is None:
            continue
        for key, now in metrics.clients.items():
            then = earlier.clients.get(key, NO_TRAFFIC)
            grown = now if then.requests > now.requests else now.minus(then)
            sums[key] = sums.get(key, NO_TRAFFIC).plus(grown)
    return {
        key: ClientRates(own.requests / seconds, own.bytes_in / seconds, own.bytes_out / seconds)
        for key, own in sums.items()
        if own.requests or own.bytes_out
    }


def _principals(sample: Sample) -> dict[str, PrincipalMetrics]:
    sums: dict[str, PrincipalMetrics] = {}
    for metrics in sample.metrics.values():
        for name, own in metrics.principals.items():
            other = sums.get(name, PrincipalMetrics(0, frozenset(), None))
            throttle_times = [
                each.throttle_ms for each in (own, other) if each.throttle_ms is not None
            ]
            sums[name] = PrincipalMetrics(
                own.connections + other.connections,
                own.listeners | other.listeners,
                max(throttle_times, default=None),
            )
    return sums


def _topic(name: str, before: Sample, after: Sample, seconds: float) -> TopicRates:
    now, earlier = after.topics[name], before.topics.get(name)
    bytes_in = _metric(before, after, lambda metrics: metrics.bytes_in.get(name, 0.0), seconds)
    if bytes_in is None and now.log_bytes is not None and earlier is not None:
        # Without metrics, use the growth of the log, which is too low if retention deletes data.
        bytes_in = max(0, now.log_bytes - (earlier.log_bytes or 0)) / seconds
    start = now.end_offsets if earlier is None else earlier.end_offsets
    return TopicRates(
        now.partitions,
        now.unwell,
        max(0, now.end_offsets - start) / seconds,
        bytes_in,
        _metric(before, after, lambda metrics: metrics.bytes_out.get(name, 0.0), seconds),
        now.log_bytes,
    )


def _metric(
    before: Sample, after: Sample, read: Callable[[BrokerMetrics], float], seconds: float
) -> float | None:
    """Return the growth of a counter per second, summed over all brokers; None without metrics."""
    if not after.metrics:
        return None
    grown = 0.0
    for address, metrics in after.metrics.items():
        earlier = before.metrics.get(address)
        # A counter that decreased belongs to a restarted broker, whose count began at zero.
        start = 0.0 if earlier is None or read(earlier) > read(metrics) else read(earlier)
        grown += read(metrics) - start
    return grown / seconds


def _process(before: BrokerMetrics | None, now: BrokerMetrics, seconds: float) -> BrokerRates:
    requests, cpu = 0.0, None
    if before is not None:
        requests = max(0.0, sum(now.requests.values()) - sum(before.requests.values())) / seconds
        if now.cpu_seconds is not None and before.cpu_seconds is not None:
            cpu = max(0.0, now.cpu_seconds - before.cpu_seconds) / seconds
    return BrokerRates(
        requests, cpu, now.resident_bytes, now.connections, now.open_files, now.purgatories
    )
