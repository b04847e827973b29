"""Functions for tests of bounded calls; a child process imports them by name."""

from __future__ import annotations

import time


def doubled(number: int) -> int:
    """Return twice the number."""
    return 2 * number


def refused(text: str) -> None:
    """Raise an error."""
    raise ValueError(text)


def endless(_argument: object) -> None:
    """Never return."""
    while True:
        time.sleep(60)


def large(size: int) -> int:
    """Return the size of a large object."""
    return len(bytes(size))
