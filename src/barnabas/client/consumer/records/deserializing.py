"""Apply the user's deserializers to keys and values; `poll` does so, and raises their errors.

A deserializer is a callable that takes bytes. Null keys and values stay None and are not passed to
it. The position stays at a record that cannot be deserialized (KIP-334); the records before it are
returned first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.client.consumer.records.partition_records import PartitionRecords
from barnabas.client.errors import RecordDeserializationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.client.topic_partition import TopicPartition

__all__ = ["Deserializing"]


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
