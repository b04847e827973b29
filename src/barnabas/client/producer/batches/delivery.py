"""The delivery of one record, returned by `send` (Kafka's FutureRecordMetadata).

Completing a batch costs nothing per record: a delivery knows its batch and its index in it, and
reads the outcome from the batch on request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.client.errors import ClientTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.errors import ClientError
    from barnabas.client.producer.batches.producer_batch import ProducerBatch, RecordMetadata

__all__ = ["Delivery", "DeliveryState"]


class DeliveryState(msgspec.Struct, eq=False):
    """The delivery of one record, without waiting: each of the two producers waits in its own way.

    The fields are private to the producer.
    """

    # The batch and the record's index in it; after a split those of the half.
    _batch: Any
    _index: int
    # The producer's timestamp in ms.
    _timestamp: int
    # Function (predicate, timeout) that waits until the predicate holds.
    _wait: Any

    def done(self) -> bool:
        """Whether the record is delivered or has failed."""
        return self._final().is_completed

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Call `callback(delivery)` when the record is delivered or has failed.

        If that is already the case, the callback runs before this method returns; else it runs
        while a later call of the producer runs. `flush` no longer raises this record's error.
        """
        batch = self._final()
        if batch.is_completed:
            batch.is_reported = True
            callback(self)
        else:
            entry = (self._index, self._timestamp, lambda _metadata, _error: callback(self))
            batch.callbacks.append(entry)

    def _final(self) -> ProducerBatch:
        """Return the batch that holds the record's outcome; follow splits to the right half."""
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
        batch.is_reported = True
        return batch.error

    def _outcome(self) -> RecordMetadata:
        error = self._error()
        if error is not None:
            raise error
        batch = self._final()
        return batch.metadata(self._index, self._timestamp)


class Delivery(DeliveryState, eq=False):
    """The delivery of one record that the blocking producer sends."""

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait until the record is delivered and return its position in the log.

        Sends pending batches that are due while it waits.

        Args:
            timeout: seconds; None waits until `delivery.timeout.ms` has decided the outcome.

        Returns:
            Topic, partition, offset and timestamp (ms).

        Raises:
            ClientTimeoutError: the record was neither delivered nor failed in time.
            ClientError: the delivery failed.
        """
        self._wait_until_settled(timeout)
        return self._outcome()

    def exception(self, timeout: float | None = None) -> ClientError | None:
        """Return the error of a failed record, None if it was delivered; waits as `result` does.

        Raises:
            ClientTimeoutError: the record was neither delivered nor failed in time.
        """
        self._wait_until_settled(timeout)
        return self._error()

    def _wait_until_settled(self, timeout: float | None) -> None:
        if not self.done() and not self._wait(self.done, timeout):
            topic, partition = self._final().tp
            limit = "delivery.timeout.ms" if timeout is None else f"{timeout} s"
            raise ClientTimeoutError(f"{topic}-{partition}: not delivered within {limit}")
