"""Finds the field of a Protobuf schema that contradicts another schema.

Source: "Updating A Message Type" of the Protobuf language guide. The number of a field keeps its
type, and the name of a field its number. Registries name the message only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

if TYPE_CHECKING:
    from collections.abc import Iterable

    from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
    from google.protobuf.descriptor_pb2 import DescriptorProto

__all__ = ["find_change", "find_lost_field"]

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
