"""Repeats a commit to a table while other writers are faster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from barnabas.runtime.rng import SystemRng

if TYPE_CHECKING:
    from collections.abc import Callable

# For how long a commit is tried while others change the table, and the pauses between (seconds).
TIMEOUT_S = 120.0
_PAUSE_S, _PAUSE_MAX_S = 0.05, 2.0

T = TypeVar("T")


def retry_conflicts(attempt: Callable[[], T], conflicts: tuple[type[Exception], ...]) -> T:
    """Call `attempt` until it raises no conflict, and return its result.

    Raises:
        Exception: the last conflict, when the time is up, or any other error.
    """
    deadline = time.monotonic() + TIMEOUT_S
    rng = SystemRng()
    pause = _PAUSE_S
    while True:
        try:
            return attempt()
        except conflicts:
            if time.monotonic() >= deadline:
                raise
        time.sleep(pause * (1 + rng.random()) / 2)
        pause = min(2 * pause, _PAUSE_MAX_S)
