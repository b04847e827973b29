"""Decodes the values of records in a task, and applies `valueErrors` and `deadLetterTopic`.

Avro and Protobuf are decoded by `barnabas.serializers`, JSON by `JsonColumn`. A record that cannot
be decoded may go to another topic, with the reason in its headers. The names of the headers, the
key, the value and the timestamp are those of Kafka Connect's dead letter queue (KIP-298), so that
the same tools read both. A dead letter is sent at least once: Spark may run a task again, and each
run sends the letters of its range.
"""

from __future__ import annotations

import datetime as dt
import decimal
import logging
from types import GenericAlias
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa

from barnabas.client.errors import ClientError
from barnabas.record.reader import read_headers
from barnabas.serializers.decoded_column import ColumnDecoder, decoded_array
from barnabas.serializers.errors import SchemaMismatchError, WireFormatError
from barnabas.spark.errors import DeadLetterError, OptionError, ValueDecodeError
from barnabas.spark.topics.value_format import Format, ValueErrors, message_class, open_registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray
    from pyspark.sql.types import DataType

    from barnabas.client.topic_partition import TopicPartition
    from barnabas.record.decoded_columns import DecodedRecords
    from barnabas.serializers.errors import SchemaError
    from barnabas.spark.topics.options import SourceOptions
    from barnabas.spark.topics.value_format import ValueFormat

    Header = tuple[str, bytes | None]
    BatchRecord = tuple[bytes | None, bytes | None, list[Header], int | None]

logger = logging.getLogger(__name__)
_PREFIX = "__connect.errors."
# Kafka Connect's name of the step that decodes values.
_STAGE = "VALUE_CONVERTER"
_MESSAGE_CHARACTERS = 1000
# Values that Arrow takes as they are.
_KEPT = (bytes, dt.datetime, dt.date, decimal.Decimal)


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
        return JsonColumn(target)
    if given.format is Format.PROTOBUF:
        from barnabas.serializers.protobuf_arrow import ProtobufColumn

        return ProtobufColumn(
            open_registry(given),
            message_class(given),
            target,
            with_defaults=given.with_defaults,
        )
    from barnabas.serializers.avro_arrow import AvroColumn
    from barnabas.serializers.avro_schema import AvroSchema

    return AvroColumn(open_registry(given), AvroSchema(given.schema), target)


class DeadLetters:
    """Sends the dead letters of a task.

    Args:
        options: The options of the read, with a topic for dead letters.
    """

    def __init__(self, options: SourceOptions) -> None:
        assert options.value_format is not None
        self._client = options.client
        self._topic = options.value_format.dead_letter_topic
        # The same for all letters of the query.
        self._of_query = [
            _header("connector.name", options.group_id),
            _header("stage", _STAGE),
            _header("class.name", f"barnabas.spark:{options.value_format.format.value}"),
        ]

    def send(
        self,
        tp: TopicPartition,
        records: DecodedRecords,
        columns: tuple[pa.Array, pa.Array],
        failures: Mapping[int, Exception],
    ) -> None:
        """Queue the records that failed.

        Args:
            tp: The partition of the records.
            records: The records.
            columns: Their keys and values.
            failures: The error of each failed record, by row.

        Raises:
            DeadLetterError: The topic does not exist, or a record is too large.
        """
        from barnabas.spark.topics.clients import dead_letter_producer

        try:
            dead_letter_producer(self._client).send_batch(
                self._topic, self._letters(tp, records, columns, failures)
            )
        except ClientError as error:
            self._fail(error)

    def flush(self) -> None:
        """Wait until the brokers have all letters.

        Raises:
            DeadLetterError: A letter was not acknowledged.
        """
        from barnabas.spark.topics.clients import dead_letter_producer

        try:
            dead_letter_producer(self._client).flush()
        except ClientError as error:
            self._fail(error)

    def _fail(self, error: ClientError) -> None:
        from barnabas.spark.topics.clients import discard_dead_letters

        # The pending letters belong to the failed task; the next task must not report their errors.
        discard_dead_letters(self._client)
        raise DeadLetterError(self._topic, error) from error

    def _letters(
        self,
        tp: TopicPartition,
        records: DecodedRecords,
        columns: tuple[pa.Array, pa.Array],
        failures: Mapping[int, Exception],
    ) -> Iterator[BatchRecord]:
        keys, values = columns
        for row, error in sorted(failures.items()):
            start, end = int(records.header_starts[row]), int(records.ends[row])
            timestamp = int(records.timestamps[row])
            headers = [
                *read_headers(records.buffer, start, end),
                _header("topic", tp.topic),
                _header("partition", str(tp.partition)),
                _header("offset", str(records.offsets[row])),
                *self._of_query,
                _header("exception.class.name", type(error).__qualname__),
                _header("exception.message", str(error)[:_MESSAGE_CHARACTERS]),
            ]
            yield (
                keys[row].as_py(),
                values[row].as_py(),
                headers,
                timestamp if timestamp >= 0 else None,
            )


def _header(name: str, value: str) -> Header:
    return _PREFIX + name, value.encode(errors="replace")


class JsonColumn(ColumnDecoder):
    """Converts the JSON records of one column.

    `msgspec` decodes and checks a value in one step. As in Spark's `from_json`, a field that a
    record lacks is null, fields that the schema lacks are ignored, and a STRING column takes the
    JSON text of any value. A value that does not fit its column is an error that names the field.
    `from_json` makes it null in silence.

    Args:
        target: The Arrow type of the column, a struct.

    Raises:
        OptionError: JSON has no values of a type in it.
    """

    def __init__(self, target: pa.DataType) -> None:
        self.type = target
        self._strict = msgspec.json.Decoder(_json_type(target, "value", str))
        # Text columns with other values are rare, and cost a walk through the value.
        self._lenient = msgspec.json.Decoder(_json_type(target, "value", Any))
        self._to_text = _converter(target, _text_leaf)
        self._check = _converter(target, _decimal_leaf)

    def decode(self, data: bytes) -> Any:
        """Return the fields of a record; None for the JSON null.

        Raises:
            SchemaError: The bytes are not JSON, or a value does not fit its column.
        """
        try:
            value = self._decoded(data)
            return value if value is None or self._check is None else self._check(value)
        except msgspec.ValidationError as error:
            raise SchemaMismatchError(f"{error}") from None
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise WireFormatError(f"the value is not JSON: {error}") from None

    def _decoded(self, data: bytes) -> Any:
        try:
            return msgspec.to_builtins(self._strict.decode(data), builtin_types=_KEPT)
        except msgspec.ValidationError:
            if data.strip() == b"null":
                return None
            if self._to_text is None:
                raise
            value = msgspec.to_builtins(self._lenient.decode(data), builtin_types=_KEPT)
            return self._to_text(value)


def check_type(kind: DataType) -> None:
    """Check that JSON has values of a type.

    Raises:
        OptionError: It does not, or the type does not allow null.
    """
    from pyspark.sql.pandas.types import to_arrow_type

    _json_type(to_arrow_type(kind, timezone="UTC"), "value", str)


def _json_type(kind: pa.DataType, path: str, text: Any) -> Any:
    """Return the type for `msgspec`.

    Args:
        kind: The type of the column.
        path: Where the type is, for errors.
        text: The type of values of STRING columns.
    """
    types = pa.types
    if types.is_struct(kind):
        names = [field.name for field in kind]
        if len(set(names)) < len(names):
            raise OptionError(f"valueSchema: {path} has two fields of the same name")
        fields: list[tuple[str, Any, Any]] = []
        for field in kind:
            if not field.nullable:
                raise OptionError(
                    f"valueSchema: {path}.{field.name} is NOT NULL, but a JSON value may lack any "
                    f"field: leave NOT NULL out"
                )
            inner = _json_type(field.type, f"{path}.{field.name}", text)
            # A class attribute cannot have every name that a column can have.
            named = msgspec.field(name=field.name, default=None)
            fields.append((f"field_{len(fields)}", inner | None, named))
        return msgspec.defstruct("Row", fields, gc=False)
    if types.is_list(kind):
        inner = _json_type(kind.value_type, f"{path}[]", text)
        return GenericAlias(list, (inner | None,))
    if types.is_map(kind) and types.is_string(kind.key_type):
        inner = _json_type(kind.item_type, f"{path}{{}}", text)
        return GenericAlias(dict, (str, inner | None))
    if types.is_string(kind):
        return text
    found = _PLAIN.get(str(kind))
    if found is None and types.is_decimal(kind):
        found = decimal.Decimal
    if found is None:
        raise OptionError(f"valueSchema: {path} has the type {kind}, which JSON does not have")
    return found


def _integer(bits: int) -> Any:
    limit = 1 << (bits - 1)
    return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)]


_PLAIN: dict[str, Any] = {
    "bool": bool,
    "int8": _integer(8),
    "int16": _integer(16),
    "int32": _integer(32),
    "int64": _integer(64),
    "float": float,
    "double": float,
    "binary": bytes,
    "date32[day]": dt.date,
    # A time without a zone would depend on the machine.
    "timestamp[us, tz=UTC]": Annotated[dt.datetime, msgspec.Meta(tz=True)],
    "timestamp[us]": Annotated[dt.datetime, msgspec.Meta(tz=False)],
}


def _converter(
    kind: pa.DataType, leaf: Callable[[pa.DataType], Callable[[Any], Any] | None]
) -> Callable[[Any], Any] | None:
    """Return a function that converts parts of a value; None if it has no such parts.

    Args:
        kind: The type of the value.
        leaf: Returns the function for a type without parts; None if it needs no function.
    """
    if pa.types.is_struct(kind):
        converters = [(field.name, _converter(field.type, leaf)) for field in kind]
        parts = [(name, convert) for name, convert in converters if convert is not None]
        return _struct_converter(parts) if parts else None
    if pa.types.is_list(kind):
        of_item = _converter(kind.value_type, leaf)
        return of_item and (lambda value: [_applied(of_item, each) for each in value])
    if pa.types.is_map(kind):
        of_value = _converter(kind.item_type, leaf)
        return of_value and (
            lambda value: {name: _applied(of_value, each) for name, each in value.items()}
        )
    return leaf(kind)


def _text_leaf(kind: pa.DataType) -> Callable[[Any], Any] | None:
    if not pa.types.is_string(kind):
        return None
    return lambda value: value if isinstance(value, str) else _json_text(value)


def _decimal_leaf(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return the check of decimals: pyarrow crashes for an exponent such as -999999999."""
    if not pa.types.is_decimal(kind):
        return None
    digits, scale = kind.precision, kind.scale

    def checked(value: decimal.Decimal) -> decimal.Decimal:
        exponent = value.as_tuple().exponent
        if not isinstance(exponent, int) or not -scale <= exponent <= digits:
            raise SchemaMismatchError(f"{value} is not a DECIMAL({digits},{scale})")
        return value

    return checked


def _struct_converter(
    parts: list[tuple[str, Callable[[Any], Any]]],
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def convert(value: dict[str, Any]) -> dict[str, Any]:
        for name, each in parts:
            if name in value:
                value[name] = _applied(each, value[name])
        return value

    return convert


def _applied(convert: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else convert(value)


def _json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
