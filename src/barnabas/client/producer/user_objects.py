"""Objects that a user passes to a producer: serializers, interceptors (KIP-42) and a partitioner.

They are Python objects and not values of a properties file. So they are removed from the keyword
arguments before the rest is validated as configuration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

from barnabas.client.errors import ClientConfigError
from barnabas.client.user_code import LogUserErrors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.errors import ClientError
    from barnabas.client.producer.producer_batch import DeliveryCallback, RecordMetadata

__all__ = [
    "ProducerInterceptor",
    "ProducerParts",
    "ProducerRecord",
    "record_serializer",
    "take_parts",
]

# (topic, key or value, whether the call may block) -> bytes.
RecordSerializer: TypeAlias = Callable[[str, Any, bool], "bytes | None"]


def record_serializer(part: Literal["key", "value"], given: Any) -> RecordSerializer | None:
    """Return a serializer of a user in the form that the producer calls.

    Args:
        part: What it serializes.
        given: A function of one value, or an object with `for_topic`. None, and the name of a Java
            class in a properties file, mean no serializer.

    Raises:
        ClientConfigError: It is neither.
    """
    if given is None or isinstance(given, str):
        return None
    for_topic = getattr(given, "for_topic", None)
    if for_topic is not None:

        def serialize(topic: str, value: Any, may_block: bool) -> bytes | None:
            bound = for_topic(topic, part)
            data: bytes | None = bound(value) if may_block else bound.without_blocking(value)
            return data

        return serialize
    if not callable(given):
        raise ClientConfigError(f"{part}_serializer={given!r} is not callable")

    def call(_topic: str, value: Any, _may_block: bool) -> bytes | None:
        data: bytes | None = given(value)
        return data

    return call


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


@dataclass(frozen=True, slots=True)
class ProducerParts:
    """The objects that the user passed to one producer."""

    key_serializer: RecordSerializer | None = None
    value_serializer: RecordSerializer | None = None
    interceptors: Interceptors | None = None


def take_parts(given: Mapping[str, Any]) -> tuple[ProducerParts, dict[str, Any]]:
    """Split a producer's keyword arguments into its parts and its configuration.

    Raises:
        ClientConfigError: a part has the wrong type.
    """
    left = dict(given)
    chain: Sequence[ProducerInterceptor] = left.pop("interceptors", None) or ()
    parts = ProducerParts(
        record_serializer("key", left.pop("key_serializer", None)),
        record_serializer("value", left.pop("value_serializer", None)),
        Interceptors(chain) if chain else None,
    )
    return parts, left
