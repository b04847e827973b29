"""Interceptors of a producer (KIP-42): the user's hooks for records and acknowledgements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from barnabas.client.user_code import LogUserErrors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.client.errors import ClientError
    from barnabas.client.producer.batches.producer_batch import DeliveryCallback, RecordMetadata

__all__ = ["Interceptors", "ProducerInterceptor", "ProducerRecord"]


class ProducerRecord(NamedTuple):
    """A record as given to `send`, before its key and value are serialized."""

    topic: str
    value: Any
    key: Any = None
    partition: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None


class ProducerInterceptor(Protocol):
    """Interface of an interceptor. Its exceptions are logged and ignored, as in Kafka's client."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send: the given one, or a replacement."""
        ...

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: ClientError | None
    ) -> object:
        """Receive the outcome of a record: its metadata, or the error."""
        ...

    def close(self) -> object:
        """Release resources; the producer is being closed."""
        ...


class Interceptors:
    """All interceptors of a producer, in the configured order."""

    def __init__(self, chain: Sequence[ProducerInterceptor]) -> None:
        self._chain = tuple(chain)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Pass the record through all interceptors and return the result."""
        for interceptor in self._chain:
            with LogUserErrors(interceptor):
                made = interceptor.on_send(record)
                if not isinstance(made, ProducerRecord):
                    raise TypeError(f"on_send returned {made!r} instead of a ProducerRecord")
                record = made
        return record

    def wrap(self, on_delivery: DeliveryCallback | None) -> DeliveryCallback:
        """Return a callback that informs the interceptors, then calls `on_delivery`."""

        def on_acknowledgement(
            metadata: RecordMetadata | None, error: ClientError | None, /
        ) -> None:
            for interceptor in self._chain:
                with LogUserErrors(interceptor):
                    interceptor.on_acknowledgement(metadata, error)
            if on_delivery is not None:
                on_delivery(metadata, error)

        return on_acknowledgement

    def close(self) -> None:
        """Close all interceptors."""
        for interceptor in self._chain:
            with LogUserErrors(interceptor):
                interceptor.close()
