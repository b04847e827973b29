"""Metrics of links: their states, what they have mirrored, and the lag of the mirrors led here."""

from __future__ import annotations

from heapq import nlargest
from typing import TYPE_CHECKING

from barnabas.metrics import names
from barnabas.metrics.registry import MetricFamily
from barnabas.replication.links.link_table import REVERSED, MirrorState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from barnabas.metrics.registry import Tags
    from barnabas.replication.links.link_fetchers import LinkFetchers
    from barnabas.replication.links.link_table import LinkTable
    from barnabas.replication.links.mirror_replicas import Mirror
    from barnabas.storage.topic_partition import TopicPartition

_MS_PER_S = 1000.0
# Partitions that have series of their own: those with the largest lags.
_PARTITIONS_MAX = 1_000
_STATES = ("active", "paused", REVERSED, "invalid")


def link_families(
    table: LinkTable, fetchers: Mapping[str, LinkFetchers], now_ms: int
) -> Iterator[MetricFamily]:
    """Yield the metrics of links and mirrors; without links, families without samples.

    Args:
        table: the links of the cluster.
        fetchers: those of each link that this broker runs.
        now_ms: the wall clock.
    """
    yield MetricFamily(names.LINK_STATE, list(_link_states(table)))
    yield MetricFamily(names.LINK_MIRRORS, list(_mirror_states(table)))
    running = [((("link", name),), each) for name, each in sorted(fetchers.items())]
    for family, value in _values(now_ms):
        yield MetricFamily(family, [(tags, value(each)) for tags, each in running])
    mirrors = {key: each for links in fetchers.values() for key, each in links.mirrors.items()}
    yield from _partition_families(mirrors, now_ms)


def _values(now_ms: int) -> Iterator[tuple[str, Callable[[LinkFetchers], float]]]:
    """Yield the metrics of a link on this broker, and how their values are found."""
    yield names.LINK_BYTES, lambda link: link.bytes_in
    yield names.LINK_RECORDS, lambda link: link.records_in
    yield names.LINK_PARTITIONS, lambda link: len(link.mirrors)
    yield names.LINK_FAILING, lambda link: link.failing
    yield names.LINK_LAG, lambda link: sum(each.lag or 0 for each in link.mirrors.values())
    yield names.LINK_LAG_SECONDS, lambda link: _worst_seconds(link.mirrors.values(), now_ms)


def _link_states(table: LinkTable) -> Iterator[tuple[Tags, float]]:
    for name, link in sorted(table.links.items()):
        current = "invalid" if link.problem else "active"
        if link.is_paused and not link.problem:
            current = REVERSED if link.is_reversed else "paused"
        for state in _STATES:
            yield (("link", name), ("state", state)), float(state == current)


def _mirror_states(table: LinkTable) -> Iterator[tuple[Tags, float]]:
    counts = {(name, state): 0 for name in sorted(table.links) for state in MirrorState}
    for mirror in table.mirrors.values():
        if mirror.link in table.links:
            counts[mirror.link, mirror.state] += 1
    for (name, state), count in counts.items():
        yield (("link", name), ("state", str(state))), float(count)


def _partition_families(
    mirrors: Mapping[TopicPartition, Mirror], now_ms: int
) -> Iterator[MetricFamily]:
    """Yield the lag of the mirrors with the largest lags, after the source's first response."""
    known = [(each.lag, key) for key, each in mirrors.items() if each.lag is not None]
    shown = [(_tags(key), lag, mirrors[key]) for lag, key in nlargest(_PARTITIONS_MAX, known)]
    yield MetricFamily(names.MIRROR_LAG, [(tags, float(lag)) for tags, lag, _ in shown])
    yield MetricFamily(
        names.MIRROR_LAG_SECONDS, [(tags, _lag_seconds(each, now_ms)) for tags, _, each in shown]
    )


def _worst_seconds(mirrors: Iterable[Mirror], now_ms: int) -> float:
    return max((_lag_seconds(each, now_ms) for each in mirrors if each.began_ms >= 0), default=0.0)


def _lag_seconds(mirror: Mirror, now_ms: int) -> float:
    """Return the time since the last response without lag, or since the first response."""
    if mirror.caught_up_ms == mirror.fetched_ms and not mirror.lag:
        return 0.0
    since_ms = mirror.caught_up_ms if mirror.caught_up_ms >= 0 else mirror.began_ms
    return max(0.0, (now_ms - since_ms) / _MS_PER_S)


def _tags(key: TopicPartition) -> Tags:
    return (("topic", key.topic), ("partition", str(key.partition)))
