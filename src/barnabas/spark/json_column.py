"""Decodes JSON values into the columns of `valueSchema`, record by record.

`msgspec` decodes and checks a value in one step. As in Spark's `from_json`, a field that a record
lacks is null, fields that the schema lacks are ignored, and a STRING column takes the JSON text of
any value. A value that does not fit its column is an error that names the field. `from_json` makes
it null in silence.
"""

from __future__ import annotations

import datetime as dt
import decimal
from types import GenericAlias
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pyarrow as pa

from barnabas.serializers.decoded_column import ColumnDecoder
from barnabas.serializers.errors import SchemaMismatchError, WireFormatError
from barnabas.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.types import DataType

# Values that Arrow takes as they are.
_KEPT = (bytes, dt.datetime, dt.date, decimal.Decimal)


class JsonColumn(ColumnDecoder):
    """Converts the JSON records of one column.

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
        made = [(field.name, _converter(field.type, leaf)) for field in kind]
        parts = [(name, convert) for name, convert in made if convert is not None]
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
