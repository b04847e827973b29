"""Message classes of a Protobuf schema, and the field that contradicts another schema.

A schema is .proto text, or a descriptor in base64. Source of the comparison: "Updating A Message
Type" of the Protobuf language guide. The number of a field keeps its type, and the name of a field
its number. Registries name the message only.
"""

from __future__ import annotations

import base64
import binascii
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError

from barnabas.serializers.confluent_files import CONFLUENT_FILES
from barnabas.serializers.errors import SchemaError
from barnabas.serializers.proto_text import parse_proto
from barnabas.serializers.schema import SchemaType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
    from google.protobuf.descriptor_pb2 import DescriptorProto
    from google.protobuf.message import Message

    from barnabas.serializers.schema import Schema

# Name of the file of a schema; a registry does not store one.
_MAIN = "registry/schema.proto"
_WELL_KNOWN = "google/protobuf/"
_WELL_KNOWN_MODULES = (
    *("any", "api", "descriptor", "duration", "empty", "field_mask"),
    *("source_context", "struct", "timestamp", "type", "wrappers"),
)
# The files of the package `googleapis-common-protos`, if it is installed.
_COMMON = "google/type/"
_COMMON_MODULES = (
    *("calendar_period", "color", "date", "datetime", "dayofweek", "decimal", "expr", "fraction"),
    *("interval", "latlng", "localized_text", "money", "month", "phone_number", "postal_address"),
    *("quaternion", "timeofday"),
)
# Types whose values have the same bytes; a reader takes each for the others.
_SAME_BYTES = {
    each: group
    for group, names in enumerate(
        (
            ("INT32", "INT64", "UINT32", "UINT64", "BOOL", "ENUM"),
            ("SINT32", "SINT64"),
            ("FIXED32", "SFIXED32"),
            ("FIXED64", "SFIXED64"),
            ("STRING", "BYTES"),
            ("MESSAGE",),
            ("GROUP",),
            ("FLOAT",),
            ("DOUBLE",),
        )
    )
    for each in (FieldDescriptorProto.Type.Value(f"TYPE_{name}") for name in names)
}
_BYTES_OR_MESSAGE = {FieldDescriptorProto.TYPE_BYTES, FieldDescriptorProto.TYPE_MESSAGE}


class ProtoTypes:
    """The message types of one schema.

    Args:
        schema: The schema.
        references: The schemas to which it refers, by the paths of their imports, each behind
            those that it imports.

    Raises:
        SchemaError: The schema is invalid, of another type, or imports an unknown file.
    """

    def __init__(self, schema: Schema, references: Mapping[str, Schema]) -> None:
        if schema.kind is not SchemaType.PROTOBUF:
            raise SchemaError(
                f"the schema is of type {schema.kind}, not PROTOBUF: use its deserializer"
            )
        self.pool = descriptor_pool.DescriptorPool()
        self._added: set[str] = set()
        for name, each in references.items():
            self._add(_descriptor(each.text, name))
        # The file as the text has it: the names of types are not resolved.
        self.source = main = _descriptor(schema.text, _MAIN)
        self._add(main)
        self.file: FileDescriptor = self.pool.FindFileByName(main.name)
        self._classes: dict[tuple[int, ...], type[Message]] = {}
        # The top-level messages in the order of the file.
        self._messages: list[Descriptor] = [
            self.file.message_types_by_name[each.name] for each in main.message_type
        ]

    def message_class(self, indexes: Sequence[int] = (0,)) -> type[Message]:
        """Return the class of the message type at a path of indexes.

        Raises:
            SchemaError: The file has no such message.
        """
        key = tuple(indexes)
        known = self._classes.get(key)
        if known is None:
            level, found = self._messages, None
            for index in key:
                if index >= len(level):
                    raise SchemaError(f"the Protobuf schema has no message at the path {list(key)}")
                found = level[index]
                level = list(found.nested_types)
            if found is None:
                raise SchemaError("the Protobuf schema has no message")
            known = self._classes[key] = _class_of(found)
        return known

    def named(self, name: str) -> type[Message]:
        """Return the class of a message type by its name, with or without the package.

        Raises:
            SchemaError: The file has no such message.
        """
        package = self.file.package
        for full in (name, f"{package}.{name}"):
            try:
                found = self.pool.FindMessageTypeByName(full)
            except KeyError:
                continue
            if found.file.name == self.file.name:
                return _class_of(found)
        known = ", ".join(each.full_name for each in self._messages)
        raise SchemaError(f"the Protobuf schema has no message {name}; it has {known}")

    def imported_files(self) -> list[FileDescriptorProto]:
        """Return the files that the schema needs, with the full names of types."""
        found: list[FileDescriptorProto] = []
        for name in sorted(self._added - {self.source.name}):
            file = FileDescriptorProto()
            self.pool.FindFileByName(name).CopyToProto(file)
            found.append(file)
        return found

    def _add(self, file: FileDescriptorProto) -> None:
        """Add a file to the pool, behind the files of the library that it imports."""
        if file.name in self._added:
            return
        for name in file.dependency:
            if name not in self._added:
                library = _library_file(name)
                if library is None:
                    raise SchemaError(
                        f"the Protobuf schema imports {name}, which is not among its references"
                    )
                self._add(library)
        try:
            self.pool.Add(file)
            self.pool.FindFileByName(file.name)
        except (TypeError, KeyError, ValueError) as error:
            raise SchemaError(f"the Protobuf schema is invalid: {error}"[:500]) from None
        self._added.add(file.name)


def is_well_known(name: str) -> bool:
    """Return whether a file is part of Protobuf, so that no registry needs it."""
    return name.startswith(_WELL_KNOWN)


def message_indexes(descriptor: Descriptor) -> tuple[int, ...]:
    """Return the path of a message type within its file."""
    path: list[int] = []
    inner: Any = descriptor
    while inner is not None:
        outer = inner.containing_type
        siblings = (
            list(inner.file.message_types_by_name.values())
            if outer is None
            else list(outer.nested_types)
        )
        names = [each.full_name for each in siblings]
        path.insert(0, names.index(inner.full_name))
        inner = outer
    return tuple(path)


def _class_of(descriptor: Descriptor) -> type[Message]:
    try:
        kind: type[Message] = message_factory.GetMessageClass(descriptor)
    except RecursionError:
        # The library makes the classes of all fields within each other.
        raise SchemaError(
            f"the messages within {descriptor.full_name} are too deep for the library of Protobuf"
        ) from None
    return kind


def _descriptor(text: str, name: str) -> FileDescriptorProto:
    """Return the descriptor of a schema, whose text may be the descriptor itself in base64."""
    try:
        data = base64.b64decode(text.strip(), validate=True)
        found = FileDescriptorProto.FromString(data)
    except (binascii.Error, ValueError, DecodeError):
        return parse_proto(text, name)
    if name != _MAIN:
        # Imports use the name of the reference.
        found.name = name
    return found


def _library_file(name: str) -> FileDescriptorProto | None:
    """Return a file of Protobuf itself, or of a generated module that the program has imported."""
    if name in CONFLUENT_FILES:
        return parse_proto(CONFLUENT_FILES[name], name)
    for folder, words in ((_WELL_KNOWN, _WELL_KNOWN_MODULES), (_COMMON, _COMMON_MODULES)):
        word = name.removeprefix(folder).removesuffix(".proto")
        if name.startswith(folder) and word in words:
            with suppress(ImportError):
                import_module(f"{folder.replace('/', '.')}{word}_pb2")
    try:
        descriptor = descriptor_pool.Default().FindFileByName(name)
    except KeyError:
        return None
    return FileDescriptorProto.FromString(descriptor.serialized_pb)


def find_change(earlier: FileDescriptor, newer: FileDescriptor) -> str | None:
    """Return the first field that changed, and how; None if all fields are as before or gone."""
    before, after = (
        FileDescriptorProto.FromString(each.serialized_pb) for each in (earlier, newer)
    )
    return _between(before.message_type, after.message_type, after.package)


def find_lost_field(written: Descriptor, wanted: Descriptor) -> str | None:
    """Return the first field of the wanted type that cannot take the values that are written.

    A decoder would skip such values, or take them for other ones, without an error. Fields that
    are new or gone are no problem.
    """
    pending = [(written, wanted, "")]
    # Types may contain themselves.
    seen: set[tuple[str, str]] = set()
    while pending:
        source_type, target_type, path = pending.pop()
        pair = (source_type.full_name, target_type.full_name)
        if pair in seen:
            continue
        seen.add(pair)
        for field in target_type.fields:
            source = source_type.fields_by_number.get(field.number)
            if source is None:
                continue
            below = f"{path}.{field.name}" if path else field.name
            if not _takes(source, field):
                was, now = _type_name(source), _type_name(field)
                return (
                    f"field {below}: number {field.number} is {was} in the record's schema and "
                    f"{now} in the reader's"
                )
            if source.message_type is not None and field.message_type is not None:
                pending.append((source.message_type, field.message_type, below))
    return None


def _takes(source: FieldDescriptor, field: FieldDescriptor) -> bool:
    if source.is_repeated and not field.is_repeated:
        return False
    is_same = _SAME_BYTES[source.type] == _SAME_BYTES[field.type]
    return is_same or {source.type, field.type} == _BYTES_OR_MESSAGE


def _type_name(field: FieldDescriptor) -> str:
    kind = field.message_type or field.enum_type
    name = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    name = kind.full_name if kind is not None else name
    return f"repeated {name}" if field.is_repeated else name


def _between(
    earlier: Iterable[DescriptorProto], newer: Iterable[DescriptorProto], path: str
) -> str | None:
    known = {each.name: each for each in newer}
    for message in earlier:
        other = known.get(message.name)
        if other is None:
            continue
        below = f"{path}.{message.name}" if path else message.name
        found = _in_message(message, other, below) or _between(
            message.nested_type, other.nested_type, below
        )
        if found is not None:
            return found
    return None


def _in_message(earlier: DescriptorProto, newer: DescriptorProto, path: str) -> str | None:
    by_number = {each.number: each for each in newer.field}
    by_name = {each.name: each for each in newer.field}
    for field in earlier.field:
        same = by_number.get(field.number)
        if same is not None and _kind(same) != _kind(field):
            was, now = _kind(field), _kind(same)
            return f"field {path}.{same.name}: number {field.number} was {was} and is now {now}"
        named = by_name.get(field.name)
        if named is not None and named.number != field.number:
            was = field.number
            return f"field {path}.{named.name}: its number was {was} and is now {named.number}"
    return None


def _kind(field: FieldDescriptorProto) -> str:
    name = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    kind = field.type_name.lstrip(".") or name
    return f"repeated {kind}" if field.label == FieldDescriptorProto.LABEL_REPEATED else kind
