"""Keys and values through the user's deserializers: in `poll`, so that errors are raised there.

A deserializer is a callable that takes bytes; null stays None and is not handed to it. The position
stays at a record that cannot be deserialized (KIP-334): what lies before it is returned first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.client.consumer.partition_records import PartitionRecords
from barnabas.client.errors import RecordDeserializationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


__all__ = ["Deserializing"]


class Deserializing:
    """The deserializers of one consumer."""

    __slots__ = ("_key", "_value", "is_needed")

    def __init__(
        self, key: Callable[[bytes], Any] | None, value: Callable[[bytes], Any] | None
    ) -> None:
        self._key = key
        self._value = value
        # Whether there is anything to do at all.
        self.is_needed = key is not None or value is not None

    def apply(
        self, records: PartitionRecords
    ) -> tuple[PartitionRecords, RecordDeserializationError | None]:
        """The records deserialized; only those before the first that cannot be, and its error."""
        keys, error = self._column(records, "key", self._key, records.keys)
        values, value_error = self._column(records, "value", self._value, records.values)
        if value_error is not None and (error is None or value_error.offset < error.offset):
            error = value_error
        done = PartitionRecords(records.topic_partition, records.pieces, keys, values)
        if error is not None:
            done = done.first(min(len(keys), len(values)))
        return done, error

    def _column(
        self,
        records: PartitionRecords,
        what: str,
        deserializer: Callable[[bytes], Any] | None,
        raw: Sequence[bytes | None],
    ) -> tuple[list[Any], RecordDeserializationError | None]:
        if deserializer is None:
            return list(raw), None
        # How many were made before one failed is how far the user gets: no comprehension.
        made: list[Any] = []
        try:
            for data in raw:
                made.append(None if data is None else deserializer(data))  # noqa: PERF401
        except Exception as cause:  # noqa: BLE001 - the user's code may raise anything
            offset = records.offsets[len(made)]
            error = RecordDeserializationError(records.topic_partition, offset, what, cause)
            return made, error
        return made, None
