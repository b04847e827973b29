"""Responses as plain values (lists, dictionaries, numbers, text), and their comparison."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_keys import response_class
from barnabas.protocol.codec import decode, decode_response_header, encode_bytes
from barnabas.protocol.schema import Array, Message, Struct
from differential.rules import keyed, normalised

if TYPE_CHECKING:
    from collections.abc import Iterator

    from differential.side import Outcome, Side

Flat = dict[str, object]


# Text for a path that one of the responses lacks.
ABSENT = "not there"
# Error messages that Barnabas words itself. Those that begin with "Group", "Share group" or
# "Member" are Kafka's own, and are compared.
_DETAIL = re.compile(r"status_detail=(?P<quote>['\"]).+?(?P=quote)")
_MESSAGE = re.compile(r"error_message=(?P<quote>['\"])(?!(Group|Share group|Member) ).*?(?P=quote)")


class ReencodingError(AssertionError):
    """Our codec encodes a response differently from the broker."""


def read_response(api_key: int, version: int, frame: bytes) -> Message:
    """Decode a response frame, and check that encoding it again gives the same bytes."""
    _, offset = decode_response_header(api_key, version, frame)
    message = decode(response_class(api_key), version, frame, offset)
    again = encode_bytes(message, version)
    if again != frame[offset:]:
        raise ReencodingError(
            f"{message!r}\ncame as   {frame[offset:].hex()}\nwe write  {again.hex()}"
        )
    return message


def flatten(message: Message, version: int, side: Side) -> Flat:
    """Return each field of a response by its path, normalized by the rules."""
    name = type(message).__name__.removesuffix("Response")
    return dict(_fields(message, name, name, version, side))


def as_text(message: Any, side: Side) -> str:
    """Return a message as text, with names for generated ids and without error messages."""
    text = _MESSAGE.sub("error_message=<text>", str(message))
    text = _DETAIL.sub("status_detail=<text>", text)
    for name, value in side.named_values().items():
        text = text.replace(repr(value), f"<{name}>")
    return text.replace("/127.0.0.1", "/HOST")


def flatten_outcome(outcome: Outcome) -> Flat:
    """Return the outcome without a response."""
    return {"outcome": repr(outcome)}


def differences(kafka: Flat, barnabas: Flat) -> dict[str, tuple[object, object]]:
    """Return path -> (Kafka's value, ours) for all differences."""
    paths = dict.fromkeys([*kafka, *barnabas])
    items = [_items(kafka), _items(barnabas)]
    found: dict[str, tuple[object, object]] = {}
    for path in paths:
        pair = (kafka.get(path, ABSENT), barnabas.get(path, ABSENT))
        if pair[0] == pair[1]:
            continue
        # A list item that only one response has is one difference, not one for each field.
        missing = [place for place in _places(path) if not all(place in each for each in items)]
        if missing:
            found[missing[0]] = tuple("there" if missing[0] in each else ABSENT for each in items)
        else:
            found[path] = pair
    return found


def _places(path: str) -> list[str]:
    """Return the paths of the list items that contain a path, the outermost first."""
    return [path[: match.end()] for match in re.finditer(r"\](?=\.|$)", path)]


def _items(flat: Flat) -> set[str]:
    return {place for path in flat for place in _places(path)}


def _fields(
    struct: Struct, path: str, pattern: str, version: int, side: Side
) -> Iterator[tuple[str, object]]:
    """Yield the fields of a struct.

    Args:
        struct: a message or a part of it.
        path: the path with the places in lists.
        pattern: the path without the places in lists, which selects the rules.
        version: the version of the message.
        side: the broker that sent the message.
    """
    for each in struct.__fields__:
        if each.is_in(version):
            value = getattr(struct, each.name)
            inside = f"{pattern}.{each.name}"
            yield from _value(value, each.kind, f"{path}.{each.name}", inside, version, side)


def _value(
    value: Any, kind: Any, path: str, pattern: str, version: int, side: Side
) -> Iterator[tuple[str, object]]:
    if isinstance(value, Struct):
        yield from _fields(value, path, pattern, version, side)
    elif isinstance(kind, Array) and value is not None:
        items = list(keyed(value, pattern, side))
        yield f"{path}.length", len(items)
        for place, item in items:
            yield from _value(item, kind.element, f"{path}[{place}]", f"{pattern}[]", version, side)
    else:
        yield path, normalised(value, pattern, side)
