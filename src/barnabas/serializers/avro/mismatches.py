"""Names the field at which data, or a value, does not fit an Avro schema.

`find_mismatch` compares a reader's schema with a writer's schema ("Schema Resolution" of the Avro
specification). `fastavro` resolves the data, but its errors do not name the field. `find_unfit`
compares a value with a schema; `fastavro` names only the innermost name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.serializers.avro.schema import node_type
from barnabas.serializers.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.serializers.avro.schema import AvroNode, AvroSchema

__all__ = ["find_mismatch", "find_unfit"]

# Each branch of a union is compared with each branch of the other union.
_COMPARISONS_MAX = 1_000_000
_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_SHOWN_CHARACTERS = 80
_ERRORS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
# Types of values that may have fields or items of their own.
_NESTED = {"record": dict, "error": dict, "map": dict, "array": list}


class Mismatch(NamedTuple):
    """A part of a reader's schema that does not fit the writer's."""

    # The path of the field; "" for the whole schema.
    field: str
    reason: str

    def __str__(self) -> str:
        return f"field {self.field}: {self.reason}" if self.field else self.reason


def find_mismatch(
    writer: AvroSchema, reader: AvroSchema, *, strict: bool = False
) -> Mismatch | None:
    """Return the first part of the reader's schema that does not fit; None if all parts fit.

    Args:
        writer, reader: The two schemas.
        strict: Whether each branch of a writer's union and each symbol of its enum must fit.
            Otherwise, it depends on the record, and is not reported.

    Raises:
        SchemaError: The unions of the schemas have too many branches.
    """
    return _Resolution(writer, reader, strict=strict).compare(writer.root, reader.root, "")


class _Resolution:
    """The comparison of two schemas."""

    def __init__(self, writer: AvroSchema, reader: AvroSchema, *, strict: bool) -> None:
        self._writer = writer.names
        self._reader = reader.names
        self._strict = strict
        # Pairs of records that are compared already; recursive schemas contain them again.
        self._seen: set[tuple[str, str]] = set()
        self._comparisons = 0

    def compare(self, writer: AvroNode, reader: AvroNode, path: str) -> Mismatch | None:
        """Return the first mismatch below a path."""
        self._comparisons += 1
        if self._comparisons > _COMPARISONS_MAX:
            raise SchemaError(
                f"the two Avro schemas need more than {_COMPARISONS_MAX} comparisons: their unions "
                f"have too many branches"
            )
        written, written_definition = node_type(writer, self._writer)
        wanted, wanted_definition = node_type(reader, self._reader)
        if isinstance(written_definition, list):
            return self._from_union(written_definition, reader, path)
        if isinstance(wanted_definition, list):
            found = [self.compare(writer, branch, path) for branch in wanted_definition]
            if None in found:
                return None
            branches = ", ".join(node_type(each, self._reader)[0] for each in wanted_definition)
            # The only branch besides null says more than the list of branches.
            inner = [each for each in found if each is not None and each.field != path]
            return inner[0] if inner else Mismatch(path, f"{written} is none of {branches}")
        if written != wanted:
            if wanted in _PROMOTIONS.get(written, ()):
                return None
            return Mismatch(path, f"{written} of the writer cannot be read as {wanted}")
        if isinstance(written_definition, dict) and isinstance(wanted_definition, dict):
            return self._compare_complex(wanted, written_definition, wanted_definition, path)
        return None

    def _from_union(self, branches: list[Any], reader: AvroNode, path: str) -> Mismatch | None:
        found = [self.compare(branch, reader, path) for branch in branches]
        wrong = [each for each in found if each is not None]
        is_wrong = bool(wrong) if self._strict else len(wrong) == len(branches)
        return wrong[0] if wrong and is_wrong else None

    def _compare_complex(
        self, kind: str, writer: dict[str, Any], reader: dict[str, Any], path: str
    ) -> Mismatch | None:
        match kind:
            case "record" | "error":
                return self._compare_records(writer, reader, path)
            case "array":
                return self.compare(writer["items"], reader["items"], f"{path}[]")
            case "map":
                return self.compare(writer["values"], reader["values"], f"{path}{{}}")
            case "fixed" if writer["size"] != reader["size"]:
                return Mismatch(
                    path, f"{writer['size']} bytes of the writer are not {reader['size']}"
                )
            case "enum" if self._strict and "default" not in reader:
                known = set(reader["symbols"])
                missing = [each for each in writer["symbols"] if each not in known]
                if missing:
                    return Mismatch(path, f"the reader has neither {missing[0]} nor a default")
        return None

    def _compare_records(
        self, writer: dict[str, Any], reader: dict[str, Any], path: str
    ) -> Mismatch | None:
        pair = writer["name"], reader["name"]
        if pair in self._seen:
            return None
        self._seen.add(pair)
        written = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            names = [field["name"], *field.get("aliases", ())]
            below = f"{path}.{field['name']}" if path else field["name"]
            source = next((written[name] for name in names if name in written), None)
            if source is None:
                if "default" in field:
                    continue
                return Mismatch(
                    below, "the writer's schema has no such field, and it has no default"
                )
            found = self.compare(source["type"], field["type"], below)
            if found is not None:
                return found
        return None


def find_unfit(value: Any, schema: AvroSchema) -> Mismatch | None:
    """Return the first part of a value that does not fit; None if none is found."""
    try:
        return _find(value, schema.root, "", schema.names)
    except _ERRORS:
        return None


def _find(value: Any, node: AvroNode, path: str, names: Mapping[str, AvroNode]) -> Mismatch | None:
    kind, definition = node_type(node, names)
    if isinstance(definition, list):
        return _find_in_union(value, definition, path, names)
    if kind not in _NESTED or not isinstance(definition, dict):
        # Imported only to explain an error: fastavro takes long to load.
        from fastavro.validation import validate

        fits = validate(value, definition, raise_errors=False)
        return None if fits else _mismatch(value, [_name(definition)], path)
    if not isinstance(value, _NESTED[kind]):
        return _mismatch(value, [_name(definition)], path)
    if kind == "array":
        parts = [(f"{path}[{n}]", part, definition["items"]) for n, part in enumerate(value)]
    elif kind == "map":
        parts = [(f"{path}{{{n}}}", part, definition["values"]) for n, part in value.items()]
    else:
        fields = {field["name"]: field for field in definition["fields"]}
        below = f"{path}." if path else ""
        for name, field in fields.items():
            if name not in value and "default" not in field:
                return Mismatch(f"{below}{name}", "it is missing, and has no default")
        for name in value:
            if name not in fields:
                return Mismatch(f"{below}{name}", "the schema has no such field")
        parts = [(f"{below}{n}", part, fields[n]["type"]) for n, part in value.items()]
    found = (_find(part, inner, place, names) for place, part, inner in parts)
    return next((each for each in found if each is not None), None)


def _find_in_union(
    value: Any, branches: list[Any], path: str, names: Mapping[str, AvroNode]
) -> Mismatch | None:
    found = [_find(value, branch, path, names) for branch in branches]
    if None in found:
        return None
    # A branch that fits but for a part of it says more than the list of branches.
    inner = [each for each in found if each is not None and each.field != path]
    if inner:
        return inner[0]
    return _mismatch(value, [_name(node_type(each, names)[1]) for each in branches], path)


def _mismatch(value: Any, wanted: list[str], path: str) -> Mismatch:
    return Mismatch(path, f"{repr(value)[:_SHOWN_CHARACTERS]} is not {' or '.join(wanted)}")


def _name(definition: AvroNode) -> str:
    if isinstance(definition, dict):
        return str(definition.get("name") or definition.get("logicalType") or definition["type"])
    return str(definition)
