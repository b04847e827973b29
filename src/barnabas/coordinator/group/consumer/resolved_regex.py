"""A regular expression of a consumer group, and the topics that it matched."""

from __future__ import annotations

import msgspec


class ResolvedRegex(msgspec.Struct, frozen=True):
    """The result of the last resolution."""

    topics: frozenset[str]
    # Offset of the metadata image whose topics were matched.
    version: int
    # Wall clock of the resolution, in ms.
    timestamp: int


UNRESOLVED = ResolvedRegex(frozenset(), -1, -1)
