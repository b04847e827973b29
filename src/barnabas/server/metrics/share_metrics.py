"""Metrics of share sessions and share partitions (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metrics import names
from barnabas.metrics.family import MetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.server.share.share_partitions import SharePartitions


def share_partition_families(shares: SharePartitions) -> Iterator[MetricFamily]:
    """Yield the numbers of share sessions, share partitions and their records in flight."""
    sessions = shares.sessions
    yield MetricFamily(names.SHARE_SESSIONS, [((), len(sessions))])
    yield MetricFamily(names.SHARE_SESSION_PARTITIONS, [((), sessions.partition_count)])
    yield MetricFamily(names.SHARE_SESSION_EVICTIONS, [((), sessions.evictions)])
    yield MetricFamily(names.DELAYED_SHARE_FETCH_EXPIRES, [((), shares.counts.expired_fetches)])
    yield MetricFamily(
        names.SHARE_ACKNOWLEDGEMENTS,
        [
            ((("result", result),), count)
            for result, count in shares.counts.acknowledgements.items()
        ],
    )
    yield MetricFamily(names.SHARE_LEADERS, [((), len(shares))])
    yield MetricFamily(names.SHARE_RECORDS_IN_FLIGHT, [((), shares.in_flight_count)])
