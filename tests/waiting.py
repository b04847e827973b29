"""Wait for a condition: call a function again and again until it returns a true value.

Brokers apply metadata, commits and elections after their response, and a machine can be slow. So
tests assert at once only what holds from the first response on, and wait for everything else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

# Limits for conditions that never become true, not measures of speed.
PATIENCE_S = 90.0
PAUSE_S = 0.02


def eventually(
    look: Callable[[], Found],
    missing: object = "the condition did not become true",
    within_s: float = PATIENCE_S,
    pause_s: float = PAUSE_S,
) -> Found:
    """Return the first true value of `look`.

    Args:
        look: called every `pause_s` seconds; it may do work, such as a poll.
        missing: the message of the error; if it is callable, its result.
        within_s: the time limit in seconds.
        pause_s: seconds between two calls.

    Raises:
        AssertionError: `look` returned no true value within the time limit.
    """
    deadline = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < deadline, missing() if callable(missing) else missing
        time.sleep(pause_s)
    return found


def eventually_equal(
    look: Callable[[], object], wanted: object, within_s: float = PATIENCE_S
) -> None:
    """Return as soon as `look` returns `wanted`.

    Raises:
        AssertionError: it did not within the time limit; the message has its last value.
    """
    deadline = time.monotonic() + within_s
    while (seen := look()) != wanted:
        assert time.monotonic() < deadline, f"{seen!r} instead of {wanted!r}"
        time.sleep(PAUSE_S)
