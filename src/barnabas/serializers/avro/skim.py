"""A check of Avro data before it is decoded: limits for nesting, empty items and decimals.

Only data of recursive schemas, of arrays whose items may be empty, and large data with decimals
needs it: all other data is limited by its own length. See `schema` for the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.serializers.avro.schema import node_type
from barnabas.serializers.errors import WireFormatError
from barnabas.serializers.wire_format import read_varint

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.serializers.avro.schema import AvroNode, AvroSchema

__all__ = ["DECIMAL_BYTES_MAX", "skim"]

_DEPTH_MAX = 100
# Limit for the number of values in a record.
_VALUES_MAX = 10_000_000
# Limit for a decimal: 2,400 digits.
DECIMAL_BYTES_MAX = 1000
_FIXED_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_LENGTH_FIRST = ("bytes", "string")


def skim(schema: AvroSchema, data: bytes, position: int) -> None:
    """Check that data of a schema is not nested too deep, and that its values have a limit.

    Args:
        schema: The schema of the writer.
        data: The record.
        position: The position of the Avro data in the record.

    Raises:
        WireFormatError: The data exceeds a limit, or ends too early.
    """
    skimmer = _Skimmer(schema, data)
    skimmer.skip(schema.root, position, 0)


class _Skimmer:
    """Reads over the values of one record."""

    def __init__(self, schema: AvroSchema, data: bytes) -> None:
        self._names = schema.names
        self._data = data
        self._values = 0

    def skip(self, node: AvroNode, position: int, depth: int) -> int:
        """Return the position behind a value."""
        self._values += 1
        if depth > _DEPTH_MAX:
            raise WireFormatError(f"the record is nested over {_DEPTH_MAX} levels deep")
        if self._values > _VALUES_MAX:
            raise WireFormatError(f"the record has more than {_VALUES_MAX} values")
        kind, definition = node_type(node, self._names)
        if isinstance(definition, list):
            branch, position = read_varint(self._data, position)
            if not 0 <= branch < len(definition):
                raise WireFormatError(f"the record selects branch {branch} of a union")
            return self.skip(definition[branch], position, depth + 1)
        if kind in _FIXED_SIZES:
            return self._after(position, _FIXED_SIZES[kind])
        if kind in _LENGTH_FIRST:
            length, position = read_varint(self._data, position)
            _check_decimal(definition, length)
            return self._after(position, length)
        if isinstance(definition, dict):
            return self._skip_complex(kind, definition, position, depth)
        return read_varint(self._data, position)[1]

    def _skip_complex(
        self, kind: str, definition: dict[str, Any], position: int, depth: int
    ) -> int:
        match kind:
            case "record" | "error":
                for field in definition["fields"]:
                    position = self.skip(field["type"], position, depth + 1)
                return position
            case "fixed":
                _check_decimal(definition, int(definition["size"]))
                return self._after(position, int(definition["size"]))
            case "array":
                items = definition["items"]
                return self._skip_blocks(lambda at: self.skip(items, at, depth + 1), position)
            case "map":
                values = definition["values"]
                return self._skip_blocks(
                    lambda at: self.skip(values, self.skip("string", at, depth + 1), depth + 1),
                    position,
                )
        return read_varint(self._data, position)[1]

    def _skip_blocks(self, skip_item: Callable[[int], int], position: int) -> int:
        """Skip the blocks of an array or a map; a negative count is followed by a size."""
        while True:
            count, position = read_varint(self._data, position)
            if count == 0:
                return position
            if count < 0:
                count = -count
                position = read_varint(self._data, position)[1]
            if count > _VALUES_MAX:
                raise WireFormatError(f"the record has more than {_VALUES_MAX} values")
            for _ in range(count):
                position = skip_item(position)

    def _after(self, position: int, length: int) -> int:
        if length < 0 or position + length > len(self._data):
            raise WireFormatError(f"the record ends within a value of {length} byte(s)")
        return position + length


def _check_decimal(definition: AvroNode, length: int) -> None:
    is_decimal = isinstance(definition, dict) and definition.get("logicalType") == "decimal"
    if is_decimal and length > DECIMAL_BYTES_MAX:
        raise WireFormatError(
            f"a decimal of {length} bytes: the limit is {DECIMAL_BYTES_MAX} bytes"
        )
