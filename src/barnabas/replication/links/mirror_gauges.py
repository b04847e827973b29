"""Metrics of the mirrors that a broker leads: their lag in records and in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metrics import names
from barnabas.metrics.registry import MetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.metrics.registry import Tags
    from barnabas.replication.links.mirror_replicas import Mirror
    from barnabas.storage.topic_partition import TopicPartition

_MS_PER_S = 1000.0


def mirror_families(
    mirrors: Mapping[TopicPartition, Mirror], now_ms: int
) -> Iterator[MetricFamily]:
    """Yield the lag of each mirror whose source has responded.

    Args:
        mirrors: the mirrors that the broker leads.
        now_ms: the wall clock.
    """
    known = [(_tags(key), each) for key, each in mirrors.items() if each.lag is not None]
    yield MetricFamily(names.MIRROR_LAG, [(tags, float(each.lag or 0)) for tags, each in known])
    yield MetricFamily(
        names.MIRROR_LAG_SECONDS, [(tags, _lag_seconds(each, now_ms)) for tags, each in known]
    )


def _lag_seconds(mirror: Mirror, now_ms: int) -> float:
    """Return the time since the last response without lag, or since the first response."""
    if mirror.caught_up_ms == mirror.fetched_ms and not mirror.lag:
        return 0.0
    since_ms = mirror.caught_up_ms if mirror.caught_up_ms >= 0 else mirror.began_ms
    return max(0.0, (now_ms - since_ms) / _MS_PER_S)


def _tags(key: TopicPartition) -> Tags:
    return (("topic", key.topic), ("partition", str(key.partition)))
