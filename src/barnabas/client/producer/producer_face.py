"""What both faces of the producer have in common: all that needs no wait."""

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
# Beyond the time that what is waited for has by itself: time for its own error to arrive.
_GRACE_MS = 5_000.0


class FaceSession(ProducerSession, Protocol):
    """What a face needs of its session besides."""

    def check_usable(self) -> None:
        """Raise unless calls may be made."""
        ...


class ProducerFace:
    """Base of the blocking producers and of `barnabas.aio.Producer`."""

    def __init__(self, session: FaceSession, config: ClientConfig, parts: ProducerParts) -> None:
        self._config = config
        self._check_usable = session.check_usable
        self._clock = session.cluster.runtime.clock
        self._core = ProducerCore(session, config, parts)
        self._accumulator = self._core.accumulator
        # `closed_count` of the accumulator when the loop last had a turn.
        self._closed_seen = 0
        # When the loop last had a turn from here, in ms of the wall clock.
        self._stepped_ms = 0
        self._closed = False

    @property
    def delivered(self) -> int:
        """Records that were acknowledged."""
        return self._core.delivered

    @property
    def failed(self) -> int:
        """Records that were given up."""
        return self._core.failed

    def metrics(self) -> dict[str, float]:
        """Totals and averages since the producer was made, by Kafka's names."""
        return self._core.metrics()

    def begin_transaction(self) -> None:
        """Begin: what is sent from now on is seen by read_committed consumers whole, or never.

        Raises:
            IllegalTransactionStateError: out of order.
            ProducerFencedError: another producer has the id.
        """
        self._check_open()
        self._core.transactions.begin()

    def _check_open(self) -> None:
        self._check_usable()
        if self._closed:
            raise ClientClosedError("the producer is closed")

    # Around the waits of the faces

    def _end_flush(self, timeout: float | None, *, is_empty: bool) -> None:
        """A flush has waited: raise what it ends with."""
        if not is_empty:
            seconds = self._settling_ms() / MS_PER_S if timeout is None else timeout
            raise ClientTimeoutError(f"flush: records still undelivered after {seconds:g} s")
        untold = self._core.take_untold()
        if untold is not None:
            raise untold

    def _make_room(self) -> None:
        """Send all that is held, so that there will be room."""
        self._check_open()
        if self._core.manager is not None:
            self._core.manager.check_sending()
        self._accumulator.make_all_due()
        self._core.sender.pump()

    def _has_room(self) -> bool:
        return self._accumulator.has_room

    def _full(self) -> BufferFullError:
        """There was no room for max.block.ms."""
        config = self._config
        return BufferFullError(
            f"buffer.memory={config.buffer_memory} stayed full for max.block.ms="
            f"{config.max_block_ms}: the brokers take records slower than they are sent, or not at "
            f"all"
        )

    def _settling_ms(self) -> float:
        """By when every record that was sent is delivered or given up."""
        return self._config.delivery_timeout_ms + self._config.request_timeout_ms + _GRACE_MS

    def _learning_ms(self) -> float:
        """By when a topic's metadata is known, or why it is not."""
        return self._config.max_block_ms + _GRACE_MS

    def _not_learned(self, topic: str) -> ClientTimeoutError:
        limit = f"max.block.ms={self._config.max_block_ms}"
        return ClientTimeoutError(f"metadata of {topic} was not to be had within {limit}")

    def _seconds_of(self, timeout: float | None) -> float:
        """How long a call of transactions waits."""
        return self._config.max_block_ms / MS_PER_S if timeout is None else timeout

    def _end_call(self, outcome: Outcome, seconds: float, *, is_done: bool) -> None:
        """A call of transactions has been waited for: raise what it ended with."""
        if not is_done:
            raise ClientTimeoutError(
                f"{outcome.call} did not end within {seconds} s; it goes on: call it again"
            )
        self._core.transactions.claim(outcome)
