"""Valid topic names (Kafka's Topic class)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME_LENGTH_MAX = 249

# Topics that the cluster itself writes.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

# The name of the metadata log, which is not an ordinary topic.
METADATA_TOPIC = "__cluster_metadata"

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def problem_of(name: str) -> str | None:
    """Return why `name` is not a valid topic name; None if it is valid."""
    if not name:
        return "a topic name cannot be empty"
    if name in (".", ".."):
        return f"a topic cannot be named {name!r}"
    if len(name) > NAME_LENGTH_MAX:
        return (
            f"a topic name has at most {NAME_LENGTH_MAX} characters, but this name has {len(name)}"
        )
    if not _LEGAL.fullmatch(name):
        return f"topic name {name!r} has characters other than letters, digits, '.', '_' and '-'"
    return None


def has_collision_characters(name: str) -> bool:
    """Return whether metric names, which replace '.' by '_', may be ambiguous for this topic."""
    return "." in name or "_" in name


def unified(name: str) -> str:
    """Return the name with every '.' replaced by '_'; equal for colliding topics."""
    return name.replace(".", "_")


def colliding(name: str, existing: Iterable[str]) -> str | None:
    """Return a topic in `existing` that differs from `name` only in '.' and '_'.

    The result is None if there is no such topic.
    """
    if not has_collision_characters(name):
        return None
    wanted = unified(name)
    return next((other for other in existing if other != name and unified(other) == wanted), None)
