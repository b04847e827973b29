"""Which names a topic may have (Kafka's Topic.validate)."""

from __future__ import annotations

import re

_NAME_LENGTH_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def is_legal_topic_name(name: str) -> bool:
    """Letters, digits, dot, underscore, hyphen; up to 249 of them; neither "." nor ".."."""
    return (
        name not in (".", "..")
        and len(name) <= _NAME_LENGTH_MAX
        and _LEGAL.fullmatch(name) is not None
    )
