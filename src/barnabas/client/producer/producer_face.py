"""What the blocking and the asyncio producer share: all calls that do not wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from barnabas.client.errors import BufferFullError, ClientClosedError, ClientTimeoutError
from barnabas.client.producer.producer_core import ProducerCore, ProducerSession

if TYPE_CHECKING:
    from barnabas.client.config import ClientConfig
    from barnabas.client.producer.producer_parts import ProducerParts
    from barnabas.client.transactions.calls import Outcome

__all__ = ["MS_PER_S", "FaceSession", "ProducerFace"]

MS_PER_S = 1000
# Added to the timeout of the operation itself, so that its own error arrives first.
_GRACE_MS = 5_000.0


class FaceSession(ProducerSession, Protocol):
    """The parts of the client's session that a producer's face uses."""

    def check_usable(self) -> None:
        """Raise an error unless calls are allowed (client open, process not forked)."""
        ...


class ProducerFace:
    """Base of the blocking producers and of `barnabas.aio.Producer`."""

    def __init__(self, session: FaceSession, config: ClientConfig, parts: ProducerParts) -> None:
        self._config = config
        self._check_usable = session.check_usable
        self._clock = session.cluster.runtime.clock
        self._core = ProducerCore(session, config, parts)
        self._accumulator = self._core.accumulator
        # `closed_count` of the accumulator at the last loop iteration.
        self._closed_seen = 0
        # Wall clock time of the last loop iteration that this producer started, in ms.
        self._stepped_ms = 0
        self._closed = False

    @property
    def delivered(self) -> int:
        """Number of acknowledged records."""
        return self._core.delivered

    @property
    def failed(self) -> int:
        """Number of records whose delivery failed."""
        return self._core.failed

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
        self._check_open()
        self._core.transactions.begin()

    def _check_open(self) -> None:
        self._check_usable()
        if self._closed:
            raise ClientClosedError("the producer is closed")

    # Shared steps before and after the waits of the faces

    def _end_flush(self, timeout: float | None, *, is_empty: bool) -> None:
        """Raise the error with which a flush ends, if there is one."""
        if not is_empty:
            seconds = self._settling_ms() / MS_PER_S if timeout is None else timeout
            raise ClientTimeoutError(f"flush: records still undelivered after {seconds:g} s")
        untold = self._core.take_untold()
        if untold is not None:
            raise untold

    def _make_room(self) -> None:
        """Send all pending batches, so that the buffer gets room."""
        self._check_open()
        if self._core.manager is not None:
            self._core.manager.check_sending()
        self._accumulator.make_all_due()
        self._core.sender.pump()

    def _has_room(self) -> bool:
        return self._accumulator.has_room

    def _full(self) -> BufferFullError:
        """Return the error for a buffer that stayed full for `max.block.ms`."""
        config = self._config
        return BufferFullError(
            f"buffer.memory={config.buffer_memory} stayed full for max.block.ms="
            f"{config.max_block_ms}: the brokers take records slower than they are sent, or not at "
            f"all"
        )

    def _settling_ms(self) -> float:
        """Return the time in ms after which every sent record is delivered or failed."""
        return self._config.delivery_timeout_ms + self._config.request_timeout_ms + _GRACE_MS

    def _learning_ms(self) -> float:
        """Return the time in ms after which a metadata lookup has succeeded or failed."""
        return self._config.max_block_ms + _GRACE_MS

    def _not_learned(self, topic: str) -> ClientTimeoutError:
        limit = f"max.block.ms={self._config.max_block_ms}"
        return ClientTimeoutError(f"metadata of {topic} was not to be had within {limit}")

    def _seconds_of(self, timeout: float | None) -> float:
        """Return how long a transaction call waits, in seconds."""
        return self._config.max_block_ms / MS_PER_S if timeout is None else timeout

    def _end_call(self, outcome: Outcome, seconds: float, *, is_done: bool) -> None:
        """Raise the error with which a transaction call ended, or a timeout."""
        if not is_done:
            raise ClientTimeoutError(
                f"{outcome.call} did not end within {seconds} s; it goes on: call it again"
            )
        self._core.transactions.claim(outcome)
