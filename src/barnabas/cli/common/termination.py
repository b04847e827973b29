"""Make SIGTERM end a long-running command like Ctrl-C, including its final work.

For example, `timeout 60 barnabas consume ...` commits the printed records, and the member leaves
its group.
"""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Terminated", "exit_status", "termination_as_interrupt"]


class Terminated(KeyboardInterrupt):
    """The process received SIGTERM."""


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Make SIGTERM raise `Terminated` where Ctrl-C would raise KeyboardInterrupt.

    SIGTERM is converted to SIGINT, which the client's loop only delivers at a safe moment.
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
    """Return the exit status that a shell expects from a process that a signal ended."""
    number = signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT
    return 128 + number
