"""Decodes the values of records, and applies the options `valueErrors` and `deadLetterTopic`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from barnabas.serializers.decoded_column import decoded_array
from barnabas.spark.errors import ValueDecodeError
from barnabas.spark.value_format import Format, ValueErrors, message_class, open_registry

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from barnabas.client.topic_partition import TopicPartition
    from barnabas.record.decoded_columns import DecodedRecords
    from barnabas.serializers.decoded_column import ColumnDecoder
    from barnabas.serializers.errors import SchemaError
    from barnabas.spark.dead_letters import DeadLetters
    from barnabas.spark.value_format import ValueFormat

logger = logging.getLogger(__name__)


class ValueReader:
    """Decodes the values of a task.

    Args:
        given: The format, with its schema.
        tp: The partition that the task reads.
        letters: Receives records that cannot be decoded; None sends them nowhere.
    """

    def __init__(
        self, given: ValueFormat, tp: TopicPartition, letters: DeadLetters | None = None
    ) -> None:
        self._given = given
        self._tp = tp
        self._letters = letters
        # Set by the first call, which knows the type.
        self._decoder: ColumnDecoder | None = None
        # Records so far that could not be decoded.
        self._failed = 0

    def read(
        self, records: DecodedRecords, keys: pa.Array, values: pa.Array, target: pa.DataType
    ) -> tuple[pa.Array, NDArray[np.int64] | None]:
        """Return the decoded values, and the rows that are dropped; None for no row.

        Args:
            records: The records.
            keys: Their keys as a binary array.
            values: Their values as a binary array.
            target: The Arrow type that Spark expects.

        Raises:
            ValueDecodeError: A value cannot be decoded, and `valueErrors` is `fail`.
            RegistryError: The registry was not reached, or refused a request.
            DeadLetterError: A dead letter was refused.
        """
        if self._decoder is None:
            self._decoder = column_decoder(self._given, target)
        failures: dict[int, SchemaError] = {}
        decoded = decoded_array(self._decoder, values.to_pylist(), failures)
        if not failures:
            return decoded, None
        row, error = min(failures.items())
        if self._given.errors is ValueErrors.FAIL:
            raise ValueDecodeError(self._tp, int(records.offsets[row]), error)
        if not self._failed:
            logger.warning(
                "%s, offset %d: the value cannot be decoded: %s",
                self._tp,
                records.offsets[row],
                error,
            )
        self._failed += len(failures)
        if self._letters is not None:
            self._letters.send(self._tp, records, (keys, values), failures)
        if self._given.errors is ValueErrors.NULL:
            return decoded, None
        return decoded, np.fromiter(sorted(failures), np.int64, len(failures))

    def close(self) -> None:
        """Wait until all dead letters are acknowledged; log how many values were not decoded.

        Raises:
            DeadLetterError: A dead letter was not acknowledged.
        """
        if self._letters is not None:
            self._letters.flush()
        if self._failed:
            logger.warning("%s: %d value(s) of this task cannot be decoded", self._tp, self._failed)


def column_decoder(given: ValueFormat, target: pa.DataType) -> ColumnDecoder:
    """Return the decoder of the column `value`.

    Args:
        given: The format, with its schema.
        target: The Arrow type that Spark expects.

    Raises:
        OptionError: The format has no values of the type, or the registry's URL is invalid.
    """
    if given.format is Format.JSON:
        from barnabas.spark.json_column import JsonColumn

        return JsonColumn(target)
    if given.format is Format.PROTOBUF:
        from barnabas.serializers.protobuf.arrow import ProtobufColumn

        return ProtobufColumn(
            open_registry(given),
            message_class(given),
            target,
            with_defaults=given.with_defaults,
        )
    from barnabas.serializers.avro.arrow import AvroColumn
    from barnabas.serializers.avro.schema import AvroSchema

    return AvroColumn(open_registry(given), AvroSchema(given.schema), target)
