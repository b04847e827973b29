"""Counters of a producer under Kafka's names (`producer-metrics`), per request and batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.client.producer.producer_batch import ProducerBatch

__all__ = ["ProducerMetrics"]


class ProducerMetrics:
    """Counters since the producer was created; times in ms, sizes in bytes."""

    def __init__(self) -> None:
        self.requests = 0
        self.responses = 0
        self.batches = 0
        self.bytes = 0
        # Records of first sends, and records of retries.
        self.records = 0
        self.retried_records = 0
        self.splits = 0
        # Sums for the averages, in ms.
        self._latency_ms = 0.0
        self._queue_ms = 0.0

    def on_sent(self, batches: Sequence[ProducerBatch], now_ms: float) -> None:
        """Count a request that is sent with these batches."""
        self.requests += 1
        for batch in batches:
            self.batches += 1
            self.bytes += batch.size
            if batch.attempts > 1:
                self.retried_records += batch.count
            else:
                self.records += batch.count
                self._queue_ms += (now_ms - batch.created_ms) * batch.count

    def on_response(self, sent_ms: float, now_ms: float) -> None:
        """Count a request that has ended, with a response or an error."""
        self.responses += 1
        self._latency_ms += now_ms - sent_ms

    def snapshot(self) -> dict[str, float]:
        """Return totals and averages under Kafka's names; times in ms, sizes in bytes."""
        sent = self.records + self.retried_records
        return {
            "request-total": self.requests,
            "requests-in-flight": self.requests - self.responses,
            "request-latency-avg": self._latency_ms / max(1, self.responses),
            "outgoing-byte-total": self.bytes,
            "record-send-total": self.records,
            "record-retry-total": self.retried_records,
            "record-queue-time-avg": self._queue_ms / max(1, self.records),
            "records-per-request-avg": sent / max(1, self.requests),
            "record-size-avg": self.bytes / max(1, sent),
            "batch-size-avg": self.bytes / max(1, self.batches),
            "batch-split-total": self.splits,
        }
