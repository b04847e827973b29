"""The end of the readable log for replicas and consumers."""

from __future__ import annotations

import pytest

from barnabas.replication.partition.fetch_params import fetch_isolation, lookup_isolation
from barnabas.storage.results import FetchIsolation

LOG_END, HIGH_WATERMARK = FetchIsolation.LOG_END, FetchIsolation.HIGH_WATERMARK


@pytest.mark.parametrize(
    ("replica_id", "fetch", "lookup"),
    [
        (-1, HIGH_WATERMARK, HIGH_WATERMARK),
        # Measured on Apache Kafka 4.4: a debugging consumer reads to the high watermark and is told
        # the log end offset.
        (-2, HIGH_WATERMARK, LOG_END),
        (-3, LOG_END, LOG_END),
        (2, LOG_END, LOG_END),
    ],
)
def test_replicas_read_to_the_log_end_and_consumers_to_the_high_watermark(
    replica_id: int, fetch: FetchIsolation, lookup: FetchIsolation
) -> None:
    assert fetch_isolation(replica_id, 0) is fetch
    assert lookup_isolation(replica_id, 0) is lookup


def test_read_committed_applies_to_consumers_only() -> None:
    assert lookup_isolation(-1, 1) is FetchIsolation.TXN_COMMITTED
    assert lookup_isolation(-2, 1) is LOG_END
