"""Avro schemas of a registry: parsed, with their references, and checked against hostile ones.

`fastavro` compiles its functions, so that data of a recursive schema could exhaust the C stack and
end the process, and a few bytes could be an endless list of nulls. This file refuses schemas of
unlimited size. `skim` checks data before it is decoded: limits for nesting, decimals, and the
number of values (`values_limit`). Only data of recursive schemas, of arrays and maps whose items
may make more values than bytes allow, and large data with decimals needs that: all other data is
limited by its own length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from barnabas.serializers.errors import SchemaError, WireFormatError
from barnabas.serializers.schema import VALUES_PER_BYTE_MAX, read_varint, values_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# A schema as JSON: a name, a list for a union, or an object.
AvroNode: TypeAlias = "str | list[Any] | dict[str, Any]"

# Limit for the nesting of the JSON of a schema. A record in a record adds four levels.
_JSON_DEPTH_MAX = 256
# With these attributes, `fastavro` takes a schema as checked already.
MARKS = frozenset(("__fastavro_parsed", "__named_schemas"))
# Limit for the number of values that a type makes beside those that its bytes allow, such as nulls.
_FREE_VALUES_MAX = 1000
# `fastavro` takes time for each pair of branches of a union.
_BRANCHES_MAX = 500
_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_SIZES = {"null": 0, "float": 4, "double": 8}
_DEPTH_MAX = 100
# Limit for a decimal: 2,400 digits.
DECIMAL_BYTES_MAX = 1000
_FIXED_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_LENGTH_FIRST = ("bytes", "string")


class AvroSchema:
    """A parsed schema.

    Args:
        text: The JSON of the schema.
        references: The JSON of schemas that define further names, each behind those that it uses.

    Attributes:
        root: The schema for `fastavro`, in which all names are full names.
        names: The definition of each named type.

    Raises:
        SchemaError: The schema is invalid, or its values have no limit in size.
    """

    def __init__(self, text: str, references: Iterable[str] = ()) -> None:
        named: dict[str, Any] = {}
        for each in references:
            _parse(_json(each), named)
        root = _parse(_json(text), named)
        if len(named) > len(_defined(root)):
            # `fastavro` does not need the definitions, but readers of `root` do.
            try:
                root = _parse(_inlined(root, named, set()), {})
            except RecursionError:
                raise SchemaError(
                    "the Avro schema and its references are nested too deep"
                ) from None
        self.root: AvroNode = root
        self.names: Mapping[str, AvroNode] = _defined(root)
        sizes = _Sizes(self.names)
        sizes.measure(root)
        # Whether data must be checked before it is decoded; see `skim`.
        self.needs_skim = sizes.is_recursive or sizes.has_free_items
        # Large records of schemas with decimals are checked too: the time to decode a decimal grows
        # with the square of its length.
        self.has_decimals = sizes.has_decimals

    @property
    def full_name(self) -> str:
        """The full name of the type; "" for types without a name."""
        name = self.root.get("name", "") if isinstance(self.root, dict) else ""
        return str(name)


def node_type(node: AvroNode, names: Mapping[str, AvroNode]) -> tuple[str, AvroNode]:
    """Return the type of a schema ("union" for a list) and its definition."""
    while True:
        if isinstance(node, list):
            return "union", node
        if isinstance(node, str):
            definition = names.get(node)
            if definition is None:
                return node, node
            node = definition
        inner = node["type"] if isinstance(node, dict) else node
        if isinstance(inner, str) and inner not in names:
            return inner, node
        node = inner


def check_depth(value: Any) -> None:
    """Check that JSON is not nested too deep for functions that recurse.

    Raises:
        SchemaError: It is nested too deep, or has a name that only `fastavro` may set.
    """
    level: list[Any] = [value]
    for _ in range(_JSON_DEPTH_MAX):
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                if not MARKS.isdisjoint(each):
                    raise SchemaError(f"a schema must not have the attributes {sorted(MARKS)}")
                below += each.values()
            elif isinstance(each, list):
                below += each
        if not below:
            return
        level = below
    raise SchemaError(f"the schema is nested over {_JSON_DEPTH_MAX} levels deep")


def _json(text: str) -> Any:
    word = text.strip()
    if word in _PRIMITIVES:
        # Registries store the name of a type without quotes, too.
        return word
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SchemaError(f"the Avro schema is not JSON: {error}") from None


def _parse(schema: Any, named: dict[str, Any]) -> Any:
    import fastavro
    from fastavro.schema import SchemaParseException, UnknownType

    check_depth(schema)
    try:
        return fastavro.parse_schema(schema, named)
    except UnknownType as error:
        raise SchemaError(f"the Avro schema uses the unknown type {error.name}") from None
    except (SchemaParseException, ValueError, LookupError, TypeError, AttributeError) as error:
        raise SchemaError(f"the Avro schema is invalid: {error!r}"[:500]) from None


def _children(node: AvroNode) -> list[AvroNode]:
    """Return the schemas within a schema."""
    if isinstance(node, list):
        return node
    if isinstance(node, str):
        return []
    match node["type"]:
        case "record" | "error":
            return [field["type"] for field in node["fields"]]
        case "array":
            return [node["items"]]
        case "map":
            return [node["values"]]
        case "enum" | "fixed":
            return []
        case inner:
            return [inner]


def _defined(root: AvroNode) -> dict[str, AvroNode]:
    """Return the definitions of all named types in a schema."""
    found: dict[str, AvroNode] = {}
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, dict) and node["type"] in ("record", "error", "enum", "fixed"):
            found[node["name"]] = node
        pending += _children(node)
    return found


def _inlined(node: Any, named: Mapping[str, Any], seen: set[str]) -> Any:
    """Return a schema in which the first use of each name is replaced by its definition."""
    if isinstance(node, list):
        return [_inlined(each, named, seen) for each in node]
    if isinstance(node, str):
        return _inlined(named[node], named, seen) if node in named and node not in seen else node
    plain = {key: value for key, value in node.items() if key not in MARKS}
    if "name" in plain:
        seen.add(plain["name"])
    match node["type"]:
        case "record" | "error":
            plain["fields"] = [
                {**field, "type": _inlined(field["type"], named, seen)} for field in node["fields"]
            ]
        case "array":
            plain["items"] = _inlined(node["items"], named, seen)
        case "map":
            plain["values"] = _inlined(node["values"], named, seen)
        case "enum" | "fixed":
            pass
        case inner:
            plain["type"] = _inlined(inner, named, seen)
    return plain


def _excess(size: int) -> int:
    """Return the excess of one value of so many bytes; see `_Sizes`."""
    return 1 - VALUES_PER_BYTE_MAX * size


class _Sizes:
    """Measures whether the values of each type may be more than their bytes allow.

    The excess of a type is the largest number of values beyond those that their bytes allow,
    without the items of arrays and maps. Any number of items without an excess is allowed.
    """

    def __init__(self, names: Mapping[str, AvroNode]) -> None:
        self._names = names
        # The excess by the name of the type.
        self._known: dict[str, int] = {}
        self._open: set[str] = set()
        self.is_recursive = False
        # Whether the items of an array or a map have an excess.
        self.has_free_items = False
        self.has_decimals = False

    def measure(self, node: AvroNode) -> int:
        """Return the excess of a type."""
        kind, definition = node_type(node, self._names)
        if isinstance(definition, list):
            return self._measure_union(definition)
        if isinstance(definition, str):
            return _excess(_SIZES.get(kind, 1))
        if definition.get("logicalType") == "decimal":
            self.has_decimals = True
        match kind:
            case "record" | "error":
                return self._measure_record(definition)
            case "array":
                if self.measure(definition["items"]) > 0:
                    self.has_free_items = True
            case "map":
                # The key is a value of a byte.
                if self.measure(definition["values"]) + _excess(1) > 0:
                    self.has_free_items = True
            case "fixed":
                return _excess(int(definition["size"]))
        return _excess(_SIZES.get(kind, 1))

    def _measure_union(self, branches: list[Any]) -> int:
        if len(branches) > _BRANCHES_MAX:
            raise SchemaError(
                f"an Avro union of {len(branches)} types: the limit is {_BRANCHES_MAX}"
            )
        # The number of the branch is a byte.
        return max(map(self.measure, branches), default=0) - VALUES_PER_BYTE_MAX

    def _measure_record(self, record: dict[str, Any]) -> int:
        name = record["name"]
        if name in self._known:
            return self._known[name]
        if name in self._open:
            self.is_recursive = True
            return _excess(0)
        self._open.add(name)
        found = 1 + sum(self.measure(field["type"]) for field in record["fields"])
        self._open.discard(name)
        if found > _FREE_VALUES_MAX:
            raise SchemaError(
                f"the Avro type {name} makes {found} values more than its bytes allow: the limit "
                f"is {_FREE_VALUES_MAX}"
            )
        self._known[name] = found
        return found


def skim(schema: AvroSchema, data: bytes, position: int) -> None:
    """Check that data of a schema is not nested too deep, and that its values have a limit.

    Args:
        schema: The schema of the writer.
        data: The record.
        position: The position of the Avro data in the record.

    Raises:
        WireFormatError: The data exceeds a limit, or ends too early.
    """
    skimmer = _Skimmer(schema, data, position)
    skimmer.skip(schema.root, position, 0)


class _Skimmer:
    """Reads over the values of one record."""

    def __init__(self, schema: AvroSchema, data: bytes, position: int) -> None:
        self._names = schema.names
        self._data = data
        self._size = len(data) - position
        self._limit = values_limit(self._size)
        self._values = 0
        # By the name of a record: see `_constant`.
        self._constants: dict[str, tuple[int, int] | None] = {}

    def skip(self, node: AvroNode, position: int, depth: int) -> int:
        """Return the position behind a value."""
        if depth > _DEPTH_MAX:
            raise WireFormatError(f"the record is nested over {_DEPTH_MAX} levels deep")
        kind, definition = node_type(node, self._names)
        if isinstance(definition, list):
            branch, position = read_varint(self._data, position)
            if not 0 <= branch < len(definition):
                raise WireFormatError(f"the record selects branch {branch} of a union")
            return self.skip(definition[branch], position, depth + 1)
        self._add(1)
        if kind in _FIXED_SIZES:
            return self._after(position, _FIXED_SIZES[kind])
        if kind in _LENGTH_FIRST:
            length, position = read_varint(self._data, position)
            _check_decimal(definition, length)
            return self._after(position, length)
        if isinstance(definition, dict):
            return self._skip_complex(kind, definition, position, depth)
        return read_varint(self._data, position)[1]

    def _add(self, values: int) -> None:
        self._values += values
        if self._values > self._limit:
            raise WireFormatError(
                f"the record makes more than {self._limit} values, the limit for {self._size} bytes"
            )

    def _constant(self, node: AvroNode) -> tuple[int, int] | None:
        """Return the bytes and the values of a type if all its values have the same; else None."""
        kind, definition = node_type(node, self._names)
        if kind in _FIXED_SIZES:
            return _FIXED_SIZES[kind], 1
        if not isinstance(definition, dict) or kind not in ("record", "error"):
            return None
        name = definition["name"]
        if name not in self._constants:
            # A record that contains itself has no constant size.
            self._constants[name] = None
            parts = [self._constant(field["type"]) for field in definition["fields"]]
            known = [each for each in parts if each is not None]
            if len(known) == len(parts):
                size, values = (sum(each) for each in zip(*known, (0, 1), strict=True))
                self._constants[name] = size, values
        return self._constants[name]

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
                constant = self._constant(items)
                return self._skip_blocks(
                    lambda at: self.skip(items, at, depth + 1), position, constant
                )
            case "map":
                values = definition["values"]
                return self._skip_blocks(
                    lambda at: self.skip(values, self.skip("string", at, depth + 1), depth + 1),
                    position,
                )
        return read_varint(self._data, position)[1]

    def _skip_blocks(
        self,
        skip_item: Callable[[int], int],
        position: int,
        constant: tuple[int, int] | None = None,
    ) -> int:
        """Skip the blocks of an array or a map; a negative count is followed by a size.

        Args:
            skip_item: Skips an item.
            position: The position of the first block.
            constant: The bytes and the values of each item, if all have the same.
        """
        while True:
            count, position = read_varint(self._data, position)
            if count == 0:
                return position
            if count < 0:
                count = -count
                position = read_varint(self._data, position)[1]
            if constant is not None:
                size, values = constant
                self._add(values * count)
                position = self._after(position, size * count)
                continue
            if self._values + count > self._limit:
                self._add(count)
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
