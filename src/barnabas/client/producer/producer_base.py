"""The calls of the blocking and the asyncio producer that do not wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.producer.producer_core import ProducerCore, ProducerSession

if TYPE_CHECKING:
    from barnabas.client.config import ClientConfig
    from barnabas.client.producer.producer_parts import ProducerParts

__all__ = ["ProducerBase"]


class ProducerBase:
    """Base of the blocking producers and of `barnabas.aio.Producer`."""

    def __init__(
        self, session: ProducerSession, config: ClientConfig, parts: ProducerParts
    ) -> None:
        self._clock = session.cluster.runtime.clock
        self._wall_ms = self._clock.wall_ms
        self._core = ProducerCore(session, config, parts)
        self._accumulator = self._core.accumulator
        # `closed_count` of the accumulator at the last loop iteration.
        self._closed_seen = 0
        # Wall clock time (ms) of the next loop iteration, unless enough batches are closed earlier.
        self._step_due_ms = 0

    def _is_turn_full(self) -> bool:
        """Return whether enough batches were closed since the last loop iteration to send them."""
        closed = self._accumulator.closed_count - self._closed_seen
        return closed >= self._core.batches_per_turn

    @property
    def delivered(self) -> int:
        """Number of acknowledged records."""
        return self._core.delivered

    @property
    def failed(self) -> int:
        """Number of records whose delivery failed."""
        return self._core.failed

    def _undelivered(self) -> int:
        """Return the number of records that are neither delivered nor failed."""
        return self._core.undelivered

    @property
    def _has_transaction(self) -> bool:
        return self._core.is_in_transaction

    def metrics(self) -> dict[str, float]:
        """Return totals and averages since the producer was created, under Kafka's names.

        Times are in milliseconds, sizes in bytes.
        """
        return self._core.metrics()

    def begin_transaction(self) -> None:
        """Begin a transaction: `read_committed` consumers see all of its records, or none.

        Raises:
            IllegalTransactionStateError: the producer is not initialized, or a transaction is open.
            ProducerFencedError: another producer uses the transactional id.
        """
        self._core.check_open()
        self._core.transactions.begin()
