"""What a user passes to a producer: records, serializers, interceptors (KIP-42), a partitioner.

The objects are Python objects and not values of a properties file. So they are removed from the
keyword arguments before the rest is validated as configuration. Arguments of `send` are checked
only when a record was refused, to explain why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, Protocol, TypeAlias

from barnabas.client.errors import ClientConfigError, InvalidRecordError, UnfitRecordError
from barnabas.client.user_code import LogUserErrors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.errors import ClientError
    from barnabas.client.producer.producer_batch import DeliveryCallback, RecordMetadata


__all__ = [
    "ProducerInterceptor",
    "ProducerParts",
    "ProducerRecord",
    "check_options",
    "exact_partition",
    "exact_timestamp",
    "exact_topic",
    "raise_unfit",
    "record_parts",
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


_BYTES = (bytes, bytearray, memoryview)
_OPTIONS = frozenset({"headers", "timestamp_ms", "on_delivery"})
_TIMESTAMP_MAX = 2**63 - 1
_RECORD_PARTS = 4


def exact_topic(topic: object) -> str:
    """Return the topic's name as a plain `str`.

    Raises:
        UnfitRecordError: the topic is not a string.
        InvalidRecordError: the topic is blank.
    """
    if not isinstance(topic, str):
        raise UnfitRecordError("producer", f"the topic is {_kind(topic)}", "give its name as a str")
    if not topic.strip():
        raise InvalidRecordError("producer", f"the topic is {topic!r}", "give its name")
    return str.__str__(topic)


def exact_partition(topic: str, partition: object) -> int:
    """Return the partition's number as a plain `int`; numpy integers are accepted.

    Raises:
        UnfitRecordError: the partition is not an integer.
    """
    if isinstance(partition, bool) or not hasattr(partition, "__index__"):
        raise UnfitRecordError(
            topic, f"its partition is {_kind(partition)}", "give a number as an int, or None"
        )
    return index(partition)


def exact_timestamp(topic: str, timestamp: object) -> int:
    """Return the timestamp in ms as a plain `int`; numpy integers are accepted.

    Raises:
        UnfitRecordError: the timestamp is not an integer.
        InvalidRecordError: the timestamp is negative or exceeds 64 bits.
    """
    hint = "give milliseconds since 1970 as an int"
    if isinstance(timestamp, bool) or not hasattr(timestamp, "__index__"):
        raise UnfitRecordError(topic, f"its timestamp is {_kind(timestamp)}", hint)
    found = index(timestamp)
    if not 0 <= found <= _TIMESTAMP_MAX:
        raise InvalidRecordError(topic, f"its timestamp is {found}", hint)
    return found


def check_options(topic: str, options: Mapping[str, object]) -> None:
    """Check the names of the keyword arguments of `send` and the callback.

    Raises:
        UnfitRecordError: a name is unknown, or `on_delivery` is not callable.
    """
    if not options.keys() <= _OPTIONS:
        wrong = ", ".join(sorted(options.keys() - _OPTIONS))
        raise UnfitRecordError(
            topic, f"send has no argument {wrong}", f"it has {', '.join(sorted(_OPTIONS))}"
        )
    on_delivery = options.get("on_delivery")
    if on_delivery is not None and not callable(on_delivery):
        wrong = f"on_delivery is {_kind(on_delivery)}"
        raise UnfitRecordError(topic, wrong, "give a function of (metadata, error)")


def record_parts(topic: str, record: object) -> tuple[Any, Any, Any, Any]:
    """Return the four parts of a record given to `send_batch`.

    Raises:
        UnfitRecordError: the record is not a tuple or list of four parts.
    """
    if not isinstance(record, tuple | list) or len(record) != _RECORD_PARTS:
        size = f" of {len(record)}" if isinstance(record, tuple | list) else ""
        raise UnfitRecordError(
            topic,
            f"it is {_kind(record)}{size}",
            "give (key, value, headers, timestamp in ms or None)",
        )
    key, value, headers, timestamp = record
    return key, value, headers, timestamp


def raise_unfit(topic: str, record: object, error: Exception) -> NoReturn:
    """Raise the error that explains why a record (key, value, headers, timestamp) was refused.

    The parts are checked only after `error`, so that valid records cost nothing.

    Raises:
        UnfitRecordError: a part of the record has the wrong type.
        InvalidRecordError: the timestamp is negative or exceeds 64 bits.
        Exception: `error` itself, if no part is wrong.
    """
    if isinstance(error, UnfitRecordError | InvalidRecordError):
        raise error
    wrong_part = _unfit_part(record_parts(topic, record))
    if wrong_part is None:
        timestamp = record_parts(topic, record)[-1]
        try:
            if timestamp is not None:
                exact_timestamp(topic, timestamp)
        except (UnfitRecordError, InvalidRecordError) as wrong:
            raise wrong from error
        raise error
    raise UnfitRecordError(topic, *wrong_part) from error


def _unfit_part(record: tuple[object, ...]) -> tuple[str, str] | None:
    """Return a description of the wrong part and a hint, None if no part is wrong."""
    key, value, headers, _timestamp = record
    for what, data in (("key", key), ("value", value)):
        if data is not None and not isinstance(data, _BYTES):
            return f"its {what} is {_kind(data)}", f"give bytes, or set {what}_serializer"
    if (wrong := _wrong_header(headers)) is not None:
        return wrong, "give pairs of a name (str) and a value (bytes or None)"
    return None


def _wrong_header(headers: object) -> str | None:
    if isinstance(headers, dict | str) or not hasattr(headers, "__iter__"):
        return f"its headers are {_kind(headers)}"
    entries: Iterable[object] = headers
    for entry in entries:
        if not isinstance(entry, tuple) or len(entry) != 2:
            return f"one of its headers is {_kind(entry)}"
        name, content = entry
        if not isinstance(name, str):
            return f"the name of a header is {_kind(name)}"
        if not _is_encodable(name):
            return f"the name of a header cannot be encoded as UTF-8: {name!r}"
        if content is not None and not isinstance(content, _BYTES):
            return f"its header {name!r} is {_kind(content)}"
    return None


def _is_encodable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(data: object) -> str:
    name = type(data).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
