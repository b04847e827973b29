"""SIGTERM ends a command that goes on for ever as Ctrl-C does: with what has to be done at the end.

`timeout 60 barnabas consume ...` commits what it printed, and a member leaves its group.
"""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Terminated", "exit_status", "termination_as_interrupt"]


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Have SIGTERM raise `Terminated` where Ctrl-C would raise KeyboardInterrupt.

    It goes on as SIGINT, which the client's loop lets come through at a safe moment only.
    """
    terminated = False

    def note(_number: int, _frame: object) -> None:
        nonlocal terminated
        terminated = True
        signal.raise_signal(signal.SIGINT)

    def interrupt(_number: int, _frame: object) -> NoReturn:
        raise Terminated if terminated else KeyboardInterrupt

    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, note),
        signal.SIGINT: signal.signal(signal.SIGINT, interrupt),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_status(interrupt: KeyboardInterrupt) -> int:
    """What a shell expects of a process that a signal ended."""
    number = signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT
    return 128 + number
