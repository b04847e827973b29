"""A sample of a cluster, from the Kafka protocol and from the given metrics listeners."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.cli.common.quorum_state import NO_LEADER, quorum_state
from barnabas.cli.groups.group_lag import group_progress
from barnabas.cli.top.metrics import scrape
from barnabas.cli.top.queries import scrape_queries
from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.cli.top.metrics import BrokerMetrics
    from barnabas.cli.top.queries import QuerySample
    from barnabas.client.connections.metadata_cache import TopicInfo
    from barnabas.client.facade import Client

__all__ = ["GroupSample", "Sample", "Sampler", "TopicSample"]


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


@dataclass(frozen=True, slots=True)
class GroupSample:
    """A group at the time of the sample."""

    state: str
    members: int
    lag: int


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


class Sampler:
    """Takes samples of one cluster.

    Args:
        client: A client of the cluster.
        metrics: Addresses of metrics listeners, one per broker.
        queries: Addresses of drivers of Spark that serve metrics of their queries.
        internal: Whether to include internal topics.
        groups: Maximum number of groups to describe.
    """

    def __init__(
        self,
        client: Client,
        metrics: Sequence[str],
        queries: Sequence[str],
        *,
        internal: bool,
        groups: int,
    ) -> None:
        self._client = client
        self._metrics = tuple(metrics)
        self._queries = tuple(queries)
        self._internal = internal
        self._groups_max = groups

    def take(self) -> Sample:
        """Take one sample.

        Raises:
            ClientError: The cluster does not answer, or its quorum has no leader.
            MetricsError: A metrics listener does not answer.
        """
        client = self._client
        if quorum_state(client).is_lost:
            # Without a controller, metadata is outdated and dead brokers are not fenced.
            raise ClientError(f"{NO_LEADER}; barnabas doctor shows the voters that are down")
        cluster = client.describe_cluster()
        topics = {
            name: topic
            for name, topic in client.describe_topics().items()
            if self._internal or not topic.is_internal
        }
        groups, count = self._groups()
        ends = self._ends(topics)
        at = time.monotonic()
        sizes = self._sizes(broker.id for broker in cluster.brokers)
        return Sample(
            at,
            cluster.cluster_id,
            len(cluster.brokers),
            {name: _topic_sample(topic, ends, sizes) for name, topic in topics.items()},
            groups,
            count,
            {address: scrape(address) for address in self._metrics},
            {address: scrape_queries(address) for address in self._queries},
        )

    def _ends(self, topics: dict[str, TopicInfo]) -> dict[TopicPartition, int]:
        wanted = [TopicPartition(name, n) for name, t in topics.items() for n in t.available]
        found = self._client.list_offsets(dict.fromkeys(wanted, "latest"))
        return {tp: each.offset for tp, each in found.items()}

    def _sizes(self, nodes: Iterable[int]) -> dict[TopicPartition, int] | None:
        """Return the bytes of the largest replica of each partition."""
        sizes: dict[TopicPartition, int] = {}
        for found in self._client.admin.describe_log_dirs(nodes).values():
            if isinstance(found, ClientError):
                return None
            for directory in found:
                for tp, replica in directory.replicas.items():
                    sizes[tp] = max(replica.size, sizes.get(tp, 0))
        return sizes

    def _groups(self) -> tuple[dict[str, GroupSample], int]:
        names = [group.group_id for group in self._client.admin.list_groups()]
        found = group_progress(self._client, names[: self._groups_max])
        samples = {
            name: GroupSample(each.description.state, len(each.description.members), each.lag)
            for name, each in found.items()
            if not isinstance(each, ClientError)
        }
        return samples, len(names)


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
    )
