"""Publishes the fetchers' counters as Kafka's metrics (ReplicaFetcherManager, FetcherStats)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metrics import names
from barnabas.metrics.registry import MetricFamily

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.metrics.registry import Tags
    from barnabas.replication.fetcher.fetcher_manager import FetcherManager

    # Returns the address of a broker's inter-broker listener, or None if unknown.
    AddressOf = Callable[[int], tuple[str, int] | None]

_OF_ALL: Tags = (("clientId", "Replica"),)
_NAMES = (
    names.MAX_LAG,
    names.MIN_FETCH_RATE,
    names.FAILED_PARTITIONS,
    names.DEAD_FETCHERS,
)


def unknown_address(_broker_id: int) -> None:
    """Return None: the address function for brokers without metadata."""


def fetcher_families(
    fetchers: FetcherManager | None, address_of: AddressOf = unknown_address
) -> Iterator[MetricFamily]:
    """Yield the metrics of all fetchers, then of each fetcher and its partitions.

    Args:
        fetchers: None if this broker has no fetchers.
        address_of: returns the address of a leader.
    """
    values: tuple[float, ...] = (0, 0.0, 0, 0)
    if fetchers is not None:
        values = (
            fetchers.max_lag,
            fetchers.min_fetch_rate,
            len(fetchers.failed),
            fetchers.dead_count,
        )
    for name, value in zip(_NAMES, values, strict=True):
        yield MetricFamily(name, [(_OF_ALL, value)])
    requests: list[tuple[Tags, float]] = []
    received: list[tuple[Tags, float]] = []
    lags: list[tuple[Tags, float]] = []
    for key, fetcher in () if fetchers is None else fetchers.fetchers():
        host, port = address_of(key.leader_id) or ("", -1)
        tags: Tags = (
            ("clientId", fetcher.name),
            ("brokerHost", host),
            ("brokerPort", str(port)),
        )
        requests.append((tags, fetcher.requests))
        received.append((tags, fetcher.bytes_fetched))
        for followed, lag in fetcher.lags():
            where = (("topic", followed.topic), ("partition", str(followed.partition)))
            lags.append(((("clientId", fetcher.name), *where), lag))
    yield MetricFamily(names.FETCHER_REQUESTS, requests)
    yield MetricFamily(names.FETCHER_BYTES, received)
    yield MetricFamily(names.CONSUMER_LAG, lags)
