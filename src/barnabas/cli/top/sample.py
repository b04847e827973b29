"""One look at a cluster: by its protocol, and by the metrics listeners that were named."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cli.group_lag import group_progress
from barnabas.cli.quorum_state import NO_LEADER, quorum_state
from barnabas.cli.top.metrics import scrape
from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.cli.top.metrics import BrokerMetrics
    from barnabas.client.facade import Client
    from barnabas.client.metadata_cache import TopicInfo

__all__ = ["GroupSample", "Sample", "Sampler", "TopicSample"]


@dataclass(frozen=True, slots=True)
class TopicSample:
    """A topic at one moment."""

    partitions: int
    # Partitions that lack a leader or a replica in sync.
    unwell: int
    # Sum of the partitions' ends: grows by one with each record.
    end_offsets: int
    # Bytes of one copy of each partition; None where the brokers do not tell.
    log_bytes: int | None


@dataclass(frozen=True, slots=True)
class GroupSample:
    """A group at one moment."""

    state: str
    members: int
    lag: int


@dataclass(frozen=True, slots=True)
class Sample:
    """Everything at one moment."""

    # Monotonic, s.
    at: float
    cluster_id: str
    brokers: int
    topics: dict[str, TopicSample]
    groups: dict[str, GroupSample]
    # Groups that there are, also those not looked at.
    group_count: int
    # By the address of the metrics listener.
    metrics: dict[str, BrokerMetrics]


class Sampler:
    """Takes samples of one cluster.

    Args:
        client: talks to it.
        metrics: addresses of metrics listeners, one per broker.
        internal: internal topics too.
        groups: how many groups are looked at, at most.
    """

    def __init__(
        self, client: Client, metrics: Sequence[str], *, internal: bool, groups: int
    ) -> None:
        self._client = client
        self._metrics = tuple(metrics)
        self._internal = internal
        self._groups_max = groups

    def take(self) -> Sample:
        """Look once.

        Raises:
            ClientError: the cluster does not answer, or its quorum has no leader.
            MetricsError: a metrics listener does not.
        """
        client = self._client
        if quorum_state(client).is_lost:
            # Figures of brokers without a controller are old ones, and dead brokers are not fenced.
            raise ClientError(f"{NO_LEADER}; barnabas doctor names the voters that are down")
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
        )

    def _ends(self, topics: dict[str, TopicInfo]) -> dict[TopicPartition, int]:
        wanted = [TopicPartition(name, n) for name, t in topics.items() for n in t.available]
        found = self._client.list_offsets(dict.fromkeys(wanted, "latest"))
        return {tp: each.offset for tp, each in found.items()}

    def _sizes(self, nodes: Iterable[int]) -> dict[TopicPartition, int] | None:
        """Bytes of each partition, of its largest replica."""
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
