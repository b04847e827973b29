"""What `send` returns: the delivery of one record, like a future (Kafka's FutureRecordMetadata).

Nothing happens per record when a batch is settled: a delivery knows its batch and its place in it,
and reads the outcome there when it is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.client.errors import ClientTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.errors import ClientError
    from barnabas.client.producer.producer_batch import ProducerBatch, RecordMetadata

__all__ = ["Delivery", "DeliveryState"]


class DeliveryState(msgspec.Struct, eq=False):
    """One record on its way, without the waiting: that is a matter of the face.

    The fields are the producer's own.
    """

    # The batch it is in, and the record's place there; after a split those of the half.
    _batch: Any
    _index: int
    # In ms, as the producer set it.
    _timestamp: int
    # Lets time pass until a condition holds.
    _wait: Any

    def done(self) -> bool:
        """Whether the record was delivered or given up."""
        return self._final().is_settled

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Call `callback(delivery)` when it is done, within a later call of the producer.

        At once if it is done already. Whoever asks counts as told of a failure.
        """
        batch = self._final()
        if batch.is_settled:
            batch.is_told = True
            callback(self)
        else:
            entry = (self._index, self._timestamp, lambda _metadata, _error: callback(self))
            batch.callbacks.append(entry)

    def _final(self) -> ProducerBatch:
        """The batch that decides: not one that was split."""
        batch: ProducerBatch = self._batch
        while batch.halves:
            first, second = batch.halves
            if self._index < first.count:
                batch = first
            else:
                self._index -= first.count
                batch = second
            self._batch = batch
        return batch

    def _error(self) -> ClientError | None:
        batch = self._final()
        batch.is_told = True
        return batch.error

    def _outcome(self) -> RecordMetadata:
        error = self._error()
        if error is not None:
            raise error
        batch = self._final()
        return batch.metadata(self._index, self._timestamp)


class Delivery(DeliveryState, eq=False):
    """One record sent by the blocking producer."""

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record lies; waits, sending what is due, for up to `timeout` seconds.

        None waits as long as delivery.timeout.ms lets the record live.

        Raises:
            ClientTimeoutError: neither delivered nor given up in time.
            ClientError: it was given up.
        """
        self._settled_within(timeout)
        return self._outcome()

    def exception(self, timeout: float | None = None) -> ClientError | None:
        """Why the record was given up, None if it was delivered; waits as `result` does.

        Raises:
            ClientTimeoutError: neither in time.
        """
        self._settled_within(timeout)
        return self._error()

    def _settled_within(self, timeout: float | None) -> None:
        if not self.done() and not self._wait(self.done, timeout):
            topic, partition = self._final().tp
            limit = "the time that it may live" if timeout is None else f"{timeout} s"
            raise ClientTimeoutError(f"{topic}-{partition}: not delivered within {limit}")
