"""What the page of a topic shows about its remote tier (KIP-405)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.load.metrics import MetricsError, fetch_metrics
from barnabas.cli.why.gather_tier import TierMetrics, gather_tier, with_metrics
from barnabas.cli.why.tier_reasons import tier_reasons

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.cli.partitions.snapshot import PartitionSnapshot
    from barnabas.cli.why.reasons import Reason
    from barnabas.cli.why.tier_reasons import TierFacts
    from barnabas.client.facade import Client

_STORED = "kafka_server_brokertopicmetrics_remotelogsizebytes"
_LAG = "kafka_server_brokertopicmetrics_remotecopylagbytes"
# Problems that the page shows; the page `Why does it wait?` has all.
_PROBLEMS_MAX = 5


class PartitionProblem(NamedTuple):
    """A reason that is no expected state, and its partition."""

    partition: int
    reason: Reason


class TopicTier(NamedTuple):
    """The remote tier of one topic."""

    # The facts by partition; partitions without a leader have none.
    partitions: Mapping[int, TierFacts]
    # Bytes in the tier, and bytes of closed segments that are not copied. None without metrics.
    stored_bytes: float | None
    lag_bytes: float | None
    # Bytes on the disks of the leaders.
    local_bytes: int
    problems: Sequence[PartitionProblem]


def load_tier(
    client: Client, snapshots: Iterable[PartitionSnapshot], listeners: Sequence[str]
) -> TopicTier | None:
    """Return the remote tier of the topic with these partitions; None if it has none.

    Args:
        client: A client of the cluster.
        snapshots: The partitions of one topic.
        listeners: The metrics listeners of the brokers. Those that do not answer are left out.
    """
    by_partition = {each.partition: each for each in snapshots}
    metrics = TierMetrics()
    facts = gather_tier(client, by_partition, metrics)
    if not facts:
        # Most topics have no tier, and need no metrics.
        return None
    stored: list[float] = []
    lags: list[float] = []
    topic = next(iter(by_partition)).topic
    for address in listeners:
        try:
            found = fetch_metrics(address)
        except MetricsError:
            continue
        metrics.read(address, found)
        for values, name in ((stored, _STORED), (lags, _LAG)):
            samples = found.get(name, {}).items()
            values += [value for labels, value in samples if dict(labels).get("topic") == topic]
    facts = {tp: with_metrics(each, metrics) for tp, each in facts.items()}
    problems = [
        PartitionProblem(tp.partition, reason)
        for tp, each in facts.items()
        for reason in tier_reasons(each)
        if reason.verdict != "ok"
    ]
    problems.sort(key=lambda each: (each.reason.verdict != "wrong", each.partition))
    return TopicTier(
        {tp.partition: each for tp, each in facts.items()},
        sum(stored) if stored else None,
        sum(lags) if lags else None,
        sum(each.local_bytes or 0 for each in facts.values()),
        problems[:_PROBLEMS_MAX],
    )
