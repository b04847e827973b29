"""Which names a topic may have (Kafka's Topic class)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME_LENGTH_MAX = 249

# Topics that the cluster itself writes.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

# The name of the metadata log, which is none of the topics.
METADATA_TOPIC = "__cluster_metadata"

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def problem_of(name: str) -> str | None:
    """Why `name` is no topic name; None if it is one."""
    if not name:
        return "a topic name cannot be empty"
    if name in (".", ".."):
        return f"a topic cannot be named {name!r}"
    if len(name) > NAME_LENGTH_MAX:
        return f"a topic name has at most {NAME_LENGTH_MAX} characters, this one {len(name)}"
    if not _LEGAL.fullmatch(name):
        return f"topic name {name!r} has characters other than letters, digits, '.', '_' and '-'"
    return None


def has_collision_characters(name: str) -> bool:
    """Whether metric names, where '.' becomes '_', could confuse this topic with another."""
    return "." in name or "_" in name


def unified(name: str) -> str:
    """The name with every '.' as '_': equal for topics that collide."""
    return name.replace(".", "_")


def colliding(name: str, existing: Iterable[str]) -> str | None:
    """A topic of `existing`, other than `name`, that differs only in '.' and '_'."""
    if not has_collision_characters(name):
        return None
    wanted = unified(name)
    return next((other for other in existing if other != name and unified(other) == wanted), None)
