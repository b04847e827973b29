"""Objects that a user passes to a consumer: deserializers and interceptors.

They are Python objects and not values of a properties file. So they are removed from the keyword
arguments before the rest is validated as configuration.

A deserializer is a callable that takes bytes. Null keys and values stay None and are not passed to
it. `poll` applies deserializers and raises their errors. The position stays at a record that cannot
be deserialized (KIP-334); the records before it are returned first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.client.consumer.partition_records import PartitionRecords
from barnabas.client.errors import ClientConfigError, RecordDeserializationError
from barnabas.client.user_code import LogUserErrors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from barnabas.client.consumer.consumer_records import ConsumerRecords
    from barnabas.client.group.group_offsets import CommittedOffset
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["ConsumerInterceptor", "Deserializing", "UserObjects", "take_user_objects"]


class Deserializing:
    """The key and value deserializers of one consumer."""

    __slots__ = ("_key", "_value", "is_needed")

    def __init__(
        self, key: Callable[[bytes], Any] | None, value: Callable[[bytes], Any] | None
    ) -> None:
        self._key = key
        self._value = value
        # Whether there is at least one deserializer.
        self.is_needed = key is not None or value is not None

    def apply(
        self, records: PartitionRecords
    ) -> tuple[PartitionRecords, RecordDeserializationError | None]:
        """Deserialize keys and values, up to the first record that fails.

        Returns:
            The deserialized records before the first failure, and its error; None if there is no
                failure.
        """
        keys, error = self._column(records, "key", self._key, records.keys)
        values, value_error = self._column(records, "value", self._value, records.values)
        if value_error is not None and (error is None or value_error.offset < error.offset):
            error = value_error
        done = PartitionRecords(records.topic_partition, records.pieces, keys, values)
        if error is not None:
            done = done.first(min(len(keys), len(values)))
        return done, error

    def apply_one(
        self, tp: TopicPartition, offset: int, key: bytes | None, value: bytes | None
    ) -> tuple[Any, Any]:
        """Return the deserialized key and value of one record.

        Raises:
            RecordDeserializationError: A deserializer raised.
        """
        what = "key"
        try:
            new_key = key if self._key is None or key is None else self._key(key)
            what = "value"
            return new_key, value if self._value is None or value is None else self._value(value)
        except Exception as cause:
            raise RecordDeserializationError(tp, offset, what, cause) from cause

    def _column(
        self,
        records: PartitionRecords,
        what: str,
        deserializer: Callable[[bytes], Any] | None,
        raw: Sequence[bytes | None],
    ) -> tuple[list[Any], RecordDeserializationError | None]:
        if deserializer is None:
            return list(raw), None
        # After an error, the length of `made` is the index of the failing record.
        made: list[Any] = []
        try:
            for data in raw:
                value = None if data is None else deserializer(data)
                made.append(value)
        except Exception as cause:  # noqa: BLE001 - the user's code may raise anything
            offset = records.offsets[len(made)]
            error = RecordDeserializationError(records.topic_partition, offset, what, cause)
            return made, error
        return made, None


class ConsumerInterceptor(Protocol):
    """Interface of a user's interceptor (KIP-42). Exceptions are logged and otherwise ignored."""

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        """Return the records that `poll` returns to the user: `records` itself, or others."""
        ...

    def on_commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> object:
        """Handle a successful commit of these offsets."""
        ...

    def close(self) -> object:
        """Handle the closing of the consumer."""
        ...


class ConsumerInterceptors:
    """All interceptors of a consumer, in the configured order."""

    __slots__ = ("_chain",)

    def __init__(self, chain: Sequence[ConsumerInterceptor] = ()) -> None:
        self._chain = tuple(chain)

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        """Pass the records through all interceptors; return the result of the last."""
        for interceptor in self._chain:
            with LogUserErrors(interceptor):
                records = interceptor.on_consume(records)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Report committed offsets to all interceptors."""
        for interceptor in self._chain:
            with LogUserErrors(interceptor):
                interceptor.on_commit(offsets)

    def close(self) -> None:
        """Close all interceptors."""
        for interceptor in self._chain:
            with LogUserErrors(interceptor):
                interceptor.close()


@dataclass(frozen=True, slots=True)
class UserObjects:
    """Deserializers and interceptors of one consumer."""

    deserializing: Deserializing
    interceptors: ConsumerInterceptors


def take_user_objects(
    given: Mapping[str, Any], *, may_block: bool = True
) -> tuple[UserObjects, dict[str, Any]]:
    """Separate the user's objects from the other keyword arguments.

    Args:
        given: All keyword arguments.
        may_block: Whether deserializers may look schemas up. Otherwise they raise `SchemaLookup`.

    Returns:
        The objects, and the remaining keyword arguments.

    Raises:
        ClientConfigError: A deserializer is not callable.
    """
    left = dict(given)
    deserializing = Deserializing(
        _deserializer(left, "key_deserializer", may_block=may_block),
        _deserializer(left, "value_deserializer", may_block=may_block),
    )
    chain: Sequence[ConsumerInterceptor] = left.pop("interceptors", None) or ()
    return UserObjects(deserializing, ConsumerInterceptors(chain)), left


def _deserializer(
    given: dict[str, Any], name: str, *, may_block: bool
) -> Callable[[bytes], Any] | None:
    found = given.pop(name, None)
    if found is None or isinstance(found, str):
        # Ignore names of Java classes, which properties files contain.
        return None
    if not callable(found):
        raise ClientConfigError(f"{name}={found!r} is not callable")
    deserializer: Callable[[bytes], Any] = found
    if not may_block:
        # Only deserializers with a schema registry have both forms.
        deserializer = getattr(found, "without_blocking", found)
    return deserializer
