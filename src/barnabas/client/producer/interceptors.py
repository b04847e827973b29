"""What stands between user and producer (KIP-42): it sees records go and deliveries come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from barnabas.client.shielded import Shielded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.client.errors import ClientError
    from barnabas.client.producer.producer_batch import DeliveryCallback, RecordMetadata

__all__ = ["Interceptors", "ProducerInterceptor", "ProducerRecord"]


class ProducerRecord(NamedTuple):
    """A record as it was given to `send`, before its key and value are serialized."""

    topic: str
    value: Any
    key: Any = None
    partition: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None


class ProducerInterceptor(Protocol):
    """The user's own; what it raises is logged and otherwise changes nothing, as with Kafka's."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record that goes on: the same, or another."""
        ...

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: ClientError | None
    ) -> object:
        """A record was delivered, or given up."""
        ...

    def close(self) -> object:
        """The producer is closed."""
        ...


class Interceptors:
    """All interceptors of a producer, in their order."""

    def __init__(self, chain: Sequence[ProducerInterceptor]) -> None:
        self._chain = tuple(chain)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record as the last of them gives it."""
        for interceptor in self._chain:
            with Shielded(interceptor):
                made = interceptor.on_send(record)
                if not isinstance(made, ProducerRecord):
                    raise TypeError(f"on_send returned {made!r} instead of a ProducerRecord")
                record = made
        return record

    def telling(self, on_delivery: DeliveryCallback | None) -> DeliveryCallback:
        """A callback that tells the interceptors, then calls `on_delivery`."""

        def told(metadata: RecordMetadata | None, error: ClientError | None, /) -> None:
            for interceptor in self._chain:
                with Shielded(interceptor):
                    interceptor.on_acknowledgement(metadata, error)
            if on_delivery is not None:
                on_delivery(metadata, error)

        return told

    def close(self) -> None:
        """Close them all."""
        for interceptor in self._chain:
            with Shielded(interceptor):
                interceptor.close()
