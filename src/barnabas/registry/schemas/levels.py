"""Levels of compatibility: which earlier versions a new schema is compared with, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.registry.schemas.model import ParsedSchema

LEVELS = (
    *("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD"),
    *("FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"),
)


def incompatibilities(reader: ParsedSchema, writer: ParsedSchema) -> list[str]:
    """Return why the reader cannot read what the writer wrote; an empty list if it can."""
    if reader.schema_type != writer.schema_type:
        return [
            f"Incompatible because of different schema type: the new schema is {reader.schema_type}"
            f", the old one {writer.schema_type}"
        ]
    return reader.incompatibilities(writer)


def check_level(level: str, new: ParsedSchema, earlier: Sequence[ParsedSchema]) -> list[str]:
    """Return why a new schema breaks a level of compatibility; an empty list if it does not.

    Args:
        level: One of `LEVELS`.
        new: The new schema.
        earlier: The earlier versions, the oldest first.
    """
    assert level in LEVELS, level
    if level == "NONE":
        return []
    compared = earlier if level.endswith("_TRANSITIVE") else earlier[-1:]
    kind = level.removesuffix("_TRANSITIVE")
    # The first version that differs says enough; the newest is the most interesting.
    for each in reversed(compared):
        found: list[str] = []
        if kind in ("BACKWARD", "FULL"):
            found += incompatibilities(new, each)
        if kind in ("FORWARD", "FULL"):
            found += incompatibilities(each, new)
        if found:
            return found
    return []
