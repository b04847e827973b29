"""Compatibility of Protobuf schemas: whether a reader can read what a writer wrote.

The rules are those of Confluent's registry. Messages and enums are compared by their names, fields
by their numbers. These changes from the writer's schema to the reader's are incompatible:

- the package changes, or a message is removed;
- a field changes between scalar, map and message, or between groups of scalars whose values have
  different bytes: int32, int64, uint32, uint64, bool and enums; sint32 and sint64; string and
  bytes; fixed32 and sfixed32; fixed64 and sfixed64; float; double;
- a number changes between the labels optional, required and repeated, where the text has both;
- a field gets a message of another name, or one of the same name that is incompatible;
- a required field is added or removed;
- a field of a oneof is removed, unless the message has it elsewhere;
- several fields move into a oneof, or one field moves into a oneof that had others before.

Names of fields, and all changes of enums, do not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from barnabas.registry.schemas.limits import MESSAGES_MAX, Budget, Steps, run
from barnabas.registry.schemas.model import Difference, Reference

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_DESCRIPTIONS = {
    "PACKAGE_CHANGED": "the package of the {reader} schema is not that of the {writer} schema",
    "MESSAGE_REMOVED": (
        "the {reader} schema lacks the message at path '{path}' of the {writer} schema"
    ),
    "FIELD_KIND_CHANGED": (
        "the field at path '{path}' is no longer of the same kind (scalar, map or message) in the "
        "{reader} and the {writer} schema"
    ),
    "FIELD_SCALAR_KIND_CHANGED": (
        "the type of the field at path '{path}' has different bytes in the {reader} and the "
        "{writer} schema"
    ),
    "FIELD_NAMED_TYPE_CHANGED": (
        "the message of the field at path '{path}' differs between the {reader} and the {writer} "
        "schema"
    ),
    "FIELD_NUMERIC_LABEL_CHANGED": (
        "the label of the number at path '{path}' differs between the {reader} and the {writer} "
        "schema"
    ),
    "REQUIRED_FIELD_ADDED": (
        "the {writer} schema lacks the required field at path '{path}' of the {reader} schema"
    ),
    "REQUIRED_FIELD_REMOVED": (
        "the {reader} schema lacks the required field at path '{path}' of the {writer} schema"
    ),
    "ONEOF_FIELD_REMOVED": (
        "the {reader} schema lacks the field at path '{path}' of a oneof of the {writer} schema"
    ),
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": (
        "several fields of the {writer} schema are in the oneof at path '{path}' of the {reader} "
        "schema"
    ),
    "FIELD_MOVED_TO_EXISTING_ONEOF": (
        "a field of the {writer} schema is in the oneof at path '{path}' of the {reader} schema, "
        "which has fields of an older oneof"
    ),
}
_SCALARS = {
    FieldDescriptorProto.Type.Value(f"TYPE_{name}"): group
    for group, names in enumerate(
        (
            ("INT32", "INT64", "UINT32", "UINT64", "BOOL", "ENUM"),
            ("SINT32", "SINT64"),
            ("STRING", "BYTES"),
            ("FIXED32", "SFIXED32"),
            ("FIXED64", "SFIXED64"),
            ("FLOAT",),
            ("DOUBLE",),
        )
    )
    for name in names
}
_TEXTS = (FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_BYTES)
_REQUIRED = FieldDescriptorProto.LABEL_REQUIRED
_Path: TypeAlias = tuple[str, ...]


class ProtoMessage(NamedTuple):
    """A message type.

    Attributes:
        descriptor: Its descriptor, with the full names of types.
        package: The package of its file.
        reference: The reference by which the schema has the file; None for the schema itself, and
            for files that only other files import.
        is_local: Whether the schema itself defines it.
    """

    descriptor: DescriptorProto
    package: str
    reference: Reference | None
    is_local: bool
    is_proto3: bool


class ProtoSchemaTypes:
    """The messages of a schema and of the files that it imports, by full names.

    Args:
        main: The schema itself; all names of types are resolved.
        imported: The files.
        references: The references of the schema, by the names of files.
    """

    def __init__(
        self,
        main: FileDescriptorProto,
        imported: Iterable[FileDescriptorProto],
        references: Mapping[str, Reference],
    ) -> None:
        self.main = main
        self.messages: dict[str, ProtoMessage] = {}
        for file in imported:
            self._add(file.message_type, f".{file.package}", file, references.get(file.name))
        self._add(main.message_type, f".{main.package}", main, None)

    def _add(
        self,
        messages: Iterable[DescriptorProto],
        scope: str,
        file: FileDescriptorProto,
        reference: Reference | None,
    ) -> None:
        for each in messages:
            name = f"{scope.rstrip('.')}.{each.name}"
            self.messages[name] = ProtoMessage(
                each, file.package, reference, file is self.main, file.syntax == "proto3"
            )
            self._add(each.nested_type, name, file, reference)


_Result: TypeAlias = list[Difference]


def proto_differences(reader: ProtoSchemaTypes, writer: ProtoSchemaTypes) -> list[Difference]:
    """Return what of the writer's data the reader cannot read.

    Raises:
        InvalidSchemaError: The comparison has too many steps.
    """
    return run(_Comparison(reader, writer).compare())[:MESSAGES_MAX]


def _difference(kind: str, path: _Path) -> Difference:
    return Difference(kind, _DESCRIPTIONS[kind], "#/" + "/".join(path))


class _Comparison:
    """Compares a writer's types (the old ones) with those of a reader (the new ones)."""

    def __init__(self, reader: ProtoSchemaTypes, writer: ProtoSchemaTypes) -> None:
        self._reader = reader
        self._writer = writer
        # Pairs of full names. None: the comparison is not over.
        self._pairs: dict[tuple[str, str], _Result | None] = {}
        self._budget = Budget()

    def compare(self) -> Steps[_Result]:
        old, new = self._writer.main, self._reader.main
        found: _Result = []
        if old.package != new.package:
            found.append(_difference("PACKAGE_CHANGED", ()))
        scopes = (_scope(old.package), _scope(new.package))
        found += yield self._compare_all(old.message_type, new.message_type, scopes, ())
        return found

    def _compare_all(
        self,
        old: Iterable[DescriptorProto],
        new: Iterable[DescriptorProto],
        scopes: tuple[str, str],
        path: _Path,
    ) -> Steps[_Result]:
        """Compare the messages of two scopes by their names."""
        found: _Result = []
        known = {each.name: each for each in new}
        for each in old:
            if each.options.map_entry:
                continue
            below = (*path, each.name)
            if each.name not in known:
                found.append(_difference("MESSAGE_REMOVED", below))
            else:
                names = (f"{scopes[0]}.{each.name}", f"{scopes[1]}.{each.name}")
                found += yield self._compare_messages(*names, below)
            if len(found) > MESSAGES_MAX:
                break
        return found

    def _compare_messages(self, old_name: str, new_name: str, path: _Path) -> Steps[_Result]:
        pair = (old_name, new_name)
        if pair in self._pairs:
            return self._pairs[pair] or []
        self._pairs[pair] = None
        old, new = self._writer.messages[old_name], self._reader.messages[new_name]
        self._budget.spend(1 + len(old.descriptor.field) + len(new.descriptor.field))
        fields = _Fields(old), _Fields(new)
        found = _moved(*fields, path)
        for number in fields[0].numbers | fields[1].numbers:
            one, other = (each.by_number.get(number) for each in fields)
            below = (*path, *fields[0].oneof_path(number), str(number))
            if one is not None and other is not None:
                found += yield self._compare_fields(one, other, (old, new), below)
            else:
                found += _added_or_removed(one, other, fields, below)
        found += yield self._compare_all(
            old.descriptor.nested_type, new.descriptor.nested_type, pair, path
        )
        self._pairs[pair] = found = found[:MESSAGES_MAX]
        return found

    def _compare_fields(
        self,
        old: FieldDescriptorProto,
        new: FieldDescriptorProto,
        within: tuple[ProtoMessage, ProtoMessage],
        path: _Path,
    ) -> Steps[_Result]:
        entries = self._entry(old, self._writer), self._entry(new, self._reader)
        kinds = [
            "map" if entry is not None else "scalar" if field.type in _SCALARS else "message"
            for field, entry in zip((old, new), entries, strict=True)
        ]
        if kinds[0] != kinds[1]:
            return [_difference("FIELD_KIND_CHANGED", path)]
        if entries[0] is not None and entries[1] is not None:
            found: _Result = []
            for one, other in zip(entries[0].field, entries[1].field, strict=True):
                found += yield self._compare_types(one, other, path)
            return found
        found = yield self._compare_types(old, new, path)
        if not found and kinds[0] == "scalar" and old.type not in _TEXTS:
            labels = [_label(*each) for each in zip((old, new), within, strict=True)]
            if None not in labels and labels[0] != labels[1]:
                found = [_difference("FIELD_NUMERIC_LABEL_CHANGED", path)]
        return found

    def _compare_types(
        self, old: FieldDescriptorProto, new: FieldDescriptorProto, path: _Path
    ) -> Steps[_Result]:
        groups = _SCALARS.get(old.type), _SCALARS.get(new.type)
        if groups[0] != groups[1]:
            is_scalar = None not in groups
            kind = "FIELD_SCALAR_KIND_CHANGED" if is_scalar else "FIELD_KIND_CHANGED"
            return [_difference(kind, path)]
        if groups[0] is not None:
            return []
        one, other = self._writer.messages[old.type_name], self._reader.messages[new.type_name]
        if _local_name(old.type_name, one) != _local_name(new.type_name, other):
            return [_difference("FIELD_NAMED_TYPE_CHANGED", path)]
        if _is_same_file(one, other):
            return []
        found: _Result = yield self._compare_messages(old.type_name, new.type_name, path)
        return [*found, _difference("FIELD_NAMED_TYPE_CHANGED", path)] if found else []

    def _entry(
        self, field: FieldDescriptorProto, types: ProtoSchemaTypes
    ) -> DescriptorProto | None:
        """Return the message of an entry of a map; None for other fields."""
        message = types.messages.get(field.type_name)
        if message is None or not message.descriptor.options.map_entry:
            return None
        return message.descriptor


class _Fields:
    """The fields of a message."""

    def __init__(self, message: ProtoMessage) -> None:
        descriptor = message.descriptor
        self.by_number = {each.number: each for each in descriptor.field}
        self.oneofs: dict[str, list[int]] = {}
        self._oneof_of: dict[int, str] = {}
        for each in descriptor.field:
            if each.HasField("oneof_index") and not each.proto3_optional:
                name = descriptor.oneof_decl[each.oneof_index].name
                self.oneofs.setdefault(name, []).append(each.number)
                self._oneof_of[each.number] = name

    @property
    def numbers(self) -> set[int]:
        return set(self.by_number)

    def oneof(self, number: int) -> str | None:
        """Return the oneof of a field; None if it is in none."""
        return self._oneof_of.get(number)

    def oneof_path(self, number: int) -> _Path:
        name = self.oneof(number)
        return () if name is None else (name,)


def _scope(package: str) -> str:
    return f".{package}" if package else ""


def _moved(old: _Fields, new: _Fields, path: _Path) -> _Result:
    """Return the oneofs that got fields which could be set together before."""
    found: _Result = []
    for name, numbers in new.oneofs.items():
        known = [number for number in numbers if number in old.by_number]
        moved = [number for number in known if old.oneof(number) is None]
        if len(moved) > 1:
            found.append(_difference("MULTIPLE_FIELDS_MOVED_TO_ONEOF", (*path, name)))
        elif moved and len(known) > 1:
            found.append(_difference("FIELD_MOVED_TO_EXISTING_ONEOF", (*path, name)))
    return found


def _added_or_removed(
    old: FieldDescriptorProto | None,
    new: FieldDescriptorProto | None,
    fields: tuple[_Fields, _Fields],
    path: _Path,
) -> _Result:
    if old is None:
        is_required = new is not None and new.label == _REQUIRED
        return [_difference("REQUIRED_FIELD_ADDED", path)] if is_required else []
    oneof = fields[0].oneof(old.number)
    # A oneof that is gone as a whole is no difference.
    if oneof is not None and oneof in fields[1].oneofs:
        return [_difference("ONEOF_FIELD_REMOVED", path)]
    return [_difference("REQUIRED_FIELD_REMOVED", path)] if old.label == _REQUIRED else []


def _label(field: FieldDescriptorProto, message: ProtoMessage) -> int | None:
    """Return the label that the text has; None if it has none."""
    is_optional = field.label == FieldDescriptorProto.LABEL_OPTIONAL
    if is_optional and message.is_proto3 and not field.proto3_optional:
        return None
    if field.HasField("oneof_index") and not field.proto3_optional:
        return None
    return int(field.label)


def _local_name(name: str, message: ProtoMessage) -> str:
    return name.removeprefix(_scope(message.package))


def _is_same_file(old: ProtoMessage, new: ProtoMessage) -> bool:
    """Return whether both are of the schemas themselves, or of the same version of a subject."""
    if old.is_local or new.is_local:
        return old.is_local and new.is_local
    if old.reference is None or new.reference is None:
        return False
    return (old.reference.subject, old.reference.version) == (
        new.reference.subject,
        new.reference.version,
    )
