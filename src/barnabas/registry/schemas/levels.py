"""Levels of compatibility: which earlier versions a new schema is compared with, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from barnabas.registry.config import LEVELS
from barnabas.registry.schemas.model import InvalidSchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.registry.schemas.model import ParsedSchema

_V = TypeVar("_V")


def compared_versions(level: str, earlier: Sequence[_V]) -> Sequence[_V]:
    """Return the earlier versions with which a level compares a new one, the oldest first."""
    if level == "NONE":
        return ()
    return earlier if level.endswith("_TRANSITIVE") else earlier[-1:]


def incompatibilities(reader: ParsedSchema, writer: ParsedSchema) -> list[str]:
    """Return why the reader cannot read what the writer wrote; an empty list if it can.

    Raises:
        InvalidSchemaError: The comparison is too complex.
    """
    return _messages(reader, writer, "reader", "writer")


def check_level(level: str, new: ParsedSchema, earlier: Sequence[ParsedSchema]) -> list[str]:
    """Return why a new schema breaks a level of compatibility; an empty list if it does not.

    Args:
        level: One of `LEVELS`.
        new: The new schema.
        earlier: The earlier versions, the oldest first.

    Raises:
        InvalidSchemaError: The comparison is too complex.
    """
    found = find_conflict(level, new, earlier)
    return [] if found is None else found[1]


def find_conflict(
    level: str, new: ParsedSchema, earlier: Sequence[ParsedSchema]
) -> tuple[int, list[str]] | None:
    """Return the index of the newest earlier version that conflicts with a schema, and why.

    Args:
        level: One of `LEVELS`.
        new: The new schema.
        earlier: The earlier versions, the oldest first.

    Raises:
        InvalidSchemaError: The comparison is too complex.
    """
    assert level in LEVELS, level
    compared = compared_versions(level, earlier)
    kind = level.removesuffix("_TRANSITIVE")
    for index, old in reversed(list(enumerate(compared, len(earlier) - len(compared)))):
        found: list[str] = []
        if kind in ("BACKWARD", "FULL"):
            found += _messages(new, old, "new", "old")
        if kind in ("FORWARD", "FULL"):
            found += _messages(old, new, "old", "new")
        if found:
            return index, found
    return None


def _messages(
    reader: ParsedSchema, writer: ParsedSchema, reader_name: str, writer_name: str
) -> list[str]:
    if reader.schema_type != writer.schema_type:
        return ["Incompatible because of different schema type"]
    try:
        differences = reader.differences(writer)
    except RecursionError:
        raise InvalidSchemaError("the schema is too complex: it is nested too deep") from None
    return [each.text(reader_name, writer_name) for each in differences]
