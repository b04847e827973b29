"""Limits what the bytes of a message can become, before they are decoded.

An empty message takes two bytes in a repeated field, but as many columns as its type has. So a
small record of a wide type could fill the memory of a reader. Types without repeated messages are
not checked, nor are records that are too short to exceed the limit.
Source: the page "Encoding" of Protobuf's documentation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.serializers.errors import WireFormatError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

__all__ = ["FieldLimit", "RecordLimit"]

# Limit for the columns of all repeated messages in a record, and what each byte adds to it.
_COLUMNS_MAX = 100_000
_COLUMNS_PER_BYTE = 8
# The bytes of an empty message in a repeated field: the tag and the length.
_MESSAGE_BYTES_MIN = 2
_VARINT_BYTES_MAX = 10


@dataclass(slots=True)
class _Node:
    """A message type, or the type of one field with messages."""

    # The columns that one more message makes; 0 if the field is not repeated.
    columns: int = 0
    # The fields with messages, by number.
    children: dict[int, _Node] = field(default_factory=dict)


_UNKNOWN = _Node()


class RecordLimit:
    """Checks the records of one message type.

    Args:
        message: The message type, which does not contain itself.
    """

    def __init__(self, message: Descriptor) -> None:
        # The columns of the widest repeated message; 0 without one.
        self._widest = 0
        self._root = self._node(message, 0)

    def _node(self, message: Descriptor, columns: int) -> _Node:
        self._widest = max(self._widest, columns)
        node = _Node(columns)
        for each in message.fields:
            inner = each.message_type
            if inner is not None:
                added = _width(inner) if each.is_repeated else 0
                node.children[each.number] = self._node(inner, added)
        return node

    def is_exceedable(self, size: int) -> bool:
        """Return whether a record of this many bytes may exceed the limit."""
        return size // _MESSAGE_BYTES_MIN * self._widest > _limit(size)

    def check(self, data: bytes, position: int) -> None:
        """Check the message that begins at a position.

        Damaged bytes are not an error here; the decoder does not read beyond them either.

        Raises:
            WireFormatError: The record has too many repeated messages for its size.
        """
        limit = _limit(len(data) - position)
        if _count(data, position, self._root, limit) > limit:
            raise WireFormatError(
                f"the repeated messages of the record make more than {limit} columns, the limit "
                f"for {len(data)} bytes"
            )


class FieldLimit:
    """Checks the number of fields in all messages of a record, with those that are not set.

    Args:
        message: The message type of the record, which may contain itself.
        most: The limit.
    """

    def __init__(self, message: Descriptor, most: int) -> None:
        self._most = most
        nodes = {message.full_name: _Node(len(message.fields))}
        pending = [message]
        while pending:
            outer = pending.pop()
            for each in outer.fields:
                inner = each.message_type
                if inner is None:
                    continue
                if inner.full_name not in nodes:
                    nodes[inner.full_name] = _Node(len(inner.fields))
                    pending.append(inner)
                nodes[outer.full_name].children[each.number] = nodes[inner.full_name]
        self._root = nodes[message.full_name]
        self._widest = max(each.columns for each in nodes.values())

    def is_exceeded(self, data: bytes, position: int) -> bool:
        """Return whether the message that begins at a position has more fields.

        Damaged bytes are not an error here; the decoder does not read beyond them either.
        """
        if (len(data) - position) // _MESSAGE_BYTES_MIN * self._widest <= self._most:
            return False
        return _count(data, position, self._root, self._most) > self._most


def _limit(size: int) -> int:
    return _COLUMNS_MAX + _COLUMNS_PER_BYTE * size


def _width(message: Descriptor) -> int:
    """Return the columns of a message, with those of the messages that are not repeated."""
    return sum(map(_field_width, message.fields))


def _field_width(each: FieldDescriptor) -> int:
    inner = each.message_type
    return 1 if inner is None or each.is_repeated else 1 + _width(inner)


def _count(data: bytes, position: int, node: _Node, limit: int) -> int:
    """Return the columns of all repeated messages; stop above the limit or at damaged bytes."""
    end, count = len(data), 0
    outer: list[tuple[_Node, int]] = []
    while True:
        while position >= end:
            if not outer:
                return count
            node, end = outer.pop()
        tag, position = _varint(data, position)
        child = node.children.get(tag >> 3)
        match tag & 7:
            case 0:  # varint
                _, position = _varint(data, position)
            case 1:  # 64 bits
                position += 8
            case 5:  # 32 bits
                position += 4
            case 2:  # bytes, text or a message
                length, position = _varint(data, position)
                if length > end - position:
                    return count
                if child is None:
                    position += length
                    continue
                outer.append((node, end))
                node, end = child, position + length
                count += child.columns
            case 3:  # begin of a group
                outer.append((node, end))
                node = child or _UNKNOWN
                count += node.columns
            case 4 if outer:  # end of a group
                node, end = outer.pop()
            case _:
                return count
        if count > limit:
            return count


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return an unsigned varint and the position after it; the end of damaged bytes."""
    number = 0
    for index, byte in enumerate(data[position : position + _VARINT_BYTES_MAX]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number, position + index + 1
    return 0, len(data)
