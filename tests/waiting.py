"""Waiting for what a cluster does by and by: looking again and again until it is seen.

Brokers apply metadata, commits and elections after they answered for them, and machines are slow
at times; so only what holds from the first answer on may be asserted at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

PATIENCE_S = 90.0
PAUSE_S = 0.02


def eventually(
    look: Callable[[], Found],
    missing: object = "it does not come about",
    within_s: float = PATIENCE_S,
    pause_s: float = PAUSE_S,
) -> Found:
    """The first true answer of `look`.

    Args:
        look: asked every `pause_s`; may do work of its own, such as a poll.
        missing: what to say when there is none; a callable is asked for it then.
        within_s: how long to go on; a limit for what hangs, never a measure of speed.

    Raises:
        AssertionError: nothing true was seen within that time.
    """
    deadline = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < deadline, missing() if callable(missing) else missing
        time.sleep(pause_s)
    return found


def eventually_equal(
    look: Callable[[], object], wanted: object, within_s: float = PATIENCE_S
) -> None:
    """Until `look` gives what is wanted; what it gave last is said when it never does.

    Raises:
        AssertionError: it did not within that time.
    """
    deadline = time.monotonic() + within_s
    while (seen := look()) != wanted:
        assert time.monotonic() < deadline, f"{seen!r} instead of {wanted!r}"
        time.sleep(PAUSE_S)
