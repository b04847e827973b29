"""Compatibility of Avro schemas: whether a reader can read what a writer wrote.

The rules are those of Java's `SchemaCompatibility` (1.12), which Confluent's registry uses. They
are the ones of "Schema Resolution" in the Avro specification, with these particularities:

- Names of types are compared without their namespaces, or by the aliases of the reader.
- A writer's union is readable if each branch is; which value is written does not matter.
- An enum of the reader with a default reads all symbols.
- Logical types do not matter.
- A type within itself is compatible as long as no difference is found elsewhere.
"""

from __future__ import annotations

from typing import TypeAlias

from barnabas.registry.schemas.avro_model import NO_DEFAULT, AvroField, AvroType
from barnabas.registry.schemas.limits import MESSAGES_MAX, Budget, Steps, run
from barnabas.registry.schemas.model import Difference, InvalidSchemaError

# The types of a writer, besides the same one, that a type of the reader accepts.
_PROMOTIONS = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}
_DESCRIPTIONS = {
    "NAME_MISMATCH": (
        "the name at path '{path}' differs between the {reader} and the {writer} schema"
    ),
    "FIXED_SIZE_MISMATCH": (
        "the size at path '{path}' differs between the {reader} and the {writer} schema"
    ),
    "MISSING_ENUM_SYMBOLS": (
        "the enum at path '{path}' of the {reader} schema lacks the symbols {info} of the {writer} "
        "schema"
    ),
    "READER_FIELD_MISSING_DEFAULT_VALUE": (
        "the field '{info}' at path '{path}' of the {reader} schema has no default value and is "
        "missing in the {writer} schema"
    ),
    "TYPE_MISMATCH": (
        "the type at path '{path}' of the {reader} schema cannot read that of the {writer} schema"
    ),
    "MISSING_UNION_BRANCH": (
        "the union at path '{path}' of the {reader} schema lacks a type of the {writer} schema"
    ),
}
_RECORDS = {"record", "error"}
_Path: TypeAlias = tuple[str, ...]


_Result: TypeAlias = list[Difference]


def avro_differences(reader: AvroType, writer: AvroType) -> list[Difference]:
    """Return what of the writer's data the reader cannot read.

    Raises:
        InvalidSchemaError: The comparison has too many steps.
    """
    return run(_Comparison().compare(reader, writer, ()))


def _difference(kind: str, info: str, path: _Path) -> Difference:
    return Difference(kind, _DESCRIPTIONS[kind], "/" + "/".join(path), info)


class _Comparison:
    def __init__(self) -> None:
        # Pairs that were compared, by identity. None: the comparison is not over.
        self._pairs: dict[tuple[int, int], _Result | None] = {}
        self._budget = Budget()

    def compare(self, reader: AvroType, writer: AvroType, path: _Path) -> Steps[_Result]:
        """Return the differences of two types."""
        self._budget.spend()
        pair = (id(reader), id(writer))
        if pair in self._pairs:
            return self._pairs[pair] or []
        self._pairs[pair] = None
        found: _Result = yield self._compare_new(reader, writer, path)
        self._pairs[pair] = found
        return found

    def _compare_new(self, reader: AvroType, writer: AvroType, path: _Path) -> Steps[_Result]:
        words = len(reader.aliases) + len(reader.symbols) + len(writer.symbols)
        self._budget.spend(words // 8)
        inner: Steps[_Result] | None = None
        found: _Result = []
        if writer.kind == "union":
            inner = self._writer_union(reader, writer, path)
        elif reader.kind == "union":
            inner = self._reader_union(reader, writer, path)
        elif reader.kind != writer.kind and not {reader.kind, writer.kind} <= _RECORDS:
            if writer.kind not in _PROMOTIONS.get(reader.kind, ()):
                info = f"reader type: {_word(reader)} not compatible with writer type: "
                found = [_difference("TYPE_MISMATCH", info + _word(writer), path)]
        elif reader.kind in ("array", "map"):
            step = "items" if reader.kind == "array" else "values"
            inner = self.compare(reader.inner[0], writer.inner[0], (*path, step))
        elif reader.kind in _RECORDS:
            inner = self._records(reader, writer, path)
        elif reader.name:
            found = [
                *_names(reader, writer, path),
                *_sizes(reader, writer, path),
                *_symbols(reader, writer, path),
            ]
        if inner is not None:
            found = yield inner
        return found

    def _writer_union(self, reader: AvroType, writer: AvroType, path: _Path) -> Steps[_Result]:
        found: _Result = []
        for index, branch in enumerate(writer.inner):
            below = (*path, str(index))
            differences = yield self.compare(reader, branch, below)
            if reader.kind != "union":
                found += differences
            elif differences:
                info = f"reader union lacking writer type: {_word(branch)}"
                found.append(_difference("MISSING_UNION_BRANCH", info, below))
        return found[:MESSAGES_MAX]

    def _reader_union(self, reader: AvroType, writer: AvroType, path: _Path) -> Steps[_Result]:
        for branch in reader.inner:
            # Java does not know where the branches are; their differences are seldom shown.
            if not (yield self.compare(branch, writer, ())):
                return []
        info = f"reader union lacking writer type: {_word(writer)}"
        return [_difference("MISSING_UNION_BRANCH", info, path)]

    def _records(self, reader: AvroType, writer: AvroType, path: _Path) -> Steps[_Result]:
        found = _names(reader, writer, path)
        by_name = {each.name: each for each in writer.fields}
        self._budget.spend(len(writer.fields) + len(reader.fields))
        for index, field in enumerate(reader.fields):
            below = (*path, "fields", str(index))
            written = _written_field(field, by_name, writer)
            if written is not None:
                found += yield self.compare(field.type, written.type, (*below, "type"))
            elif field.type.enum_default is not None and field.default is NO_DEFAULT:
                # Java takes the default of an enum for one of the field, and compares the types.
                found += yield self.compare(field.type, writer, (*below, "type"))
            elif field.default is NO_DEFAULT:
                found.append(_difference("READER_FIELD_MISSING_DEFAULT_VALUE", field.name, below))
            if len(found) > MESSAGES_MAX:
                break
        return found[:MESSAGES_MAX]


def _word(type_: AvroType) -> str:
    return "RECORD" if type_.kind == "error" else type_.kind.upper()


def _names(reader: AvroType, writer: AvroType, path: _Path) -> _Result:
    is_same = reader.name.rpartition(".")[2] == writer.name.rpartition(".")[2]
    if is_same or writer.name in reader.aliases:
        return []
    return [_difference("NAME_MISMATCH", f"expected: {writer.name}", (*path, "name"))]


def _sizes(reader: AvroType, writer: AvroType, path: _Path) -> _Result:
    if reader.size == writer.size:
        return []
    info = f"expected: {writer.size}, found: {reader.size}"
    return [_difference("FIXED_SIZE_MISMATCH", info, (*path, "size"))]


def _symbols(reader: AvroType, writer: AvroType, path: _Path) -> _Result:
    missing = sorted(set(writer.symbols) - set(reader.symbols))
    if not missing or reader.enum_default is not None:
        return []
    info = f"[{', '.join(missing)}]"
    return [_difference("MISSING_ENUM_SYMBOLS", info, (*path, "symbols"))]


def _written_field(
    field: AvroField, written: dict[str, AvroField], writer: AvroType
) -> AvroField | None:
    """Return the field of the writer that has the name or an alias of a reader's field."""
    found = [written[name] for name in (field.name, *field.aliases) if name in written]
    if len(found) > 1:
        raise InvalidSchemaError(
            f"the field {field.name} of the reader stands for several fields of {writer.name}"
        )
    return found[0] if found else None
