"""Which field of a new Protobuf schema contradicts an earlier one.

Source: "Updating A Message Type" of the Protobuf language guide. The number of a field keeps its
type, and the name of a field its number. Registries name the message only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

if TYPE_CHECKING:
    from collections.abc import Iterable

    from google.protobuf.descriptor import FileDescriptor
    from google.protobuf.descriptor_pb2 import DescriptorProto

__all__ = ["find_change"]


def find_change(earlier: FileDescriptor, newer: FileDescriptor) -> str | None:
    """Return the first field that changed, and how; None if all fields are as before or gone."""
    before, after = (
        FileDescriptorProto.FromString(each.serialized_pb) for each in (earlier, newer)
    )
    return _between(before.message_type, after.message_type, after.package)


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
