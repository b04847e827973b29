"""Bounds what the repetitions of a name in one request add to the response.

A small request can name the same partition a hundred thousand times. If its description is long,
the response would need more memory than the machine has.
"""

from __future__ import annotations

# Maximum number of parts that all repetitions of a request may add to its response.
_PARTS_MAX = 100_000


class Repetitions:
    """The repetitions of names in one request."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        # Number of parts that repetitions may still add. Only decreases.
        self._left = _PARTS_MAX

    def allow(self, parts: int) -> bool:
        """Return whether the response may repeat a description of so many parts."""
        self._left -= parts
        return self._left >= 0
