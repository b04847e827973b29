"""Single keys that the user presses while a live display runs."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["quit_by_key"]

_QUIT = frozenset(b"qQ")
_KEYS_MAX = 64


class Keyboard:
    """Waits between two updates of a display, unless the user quits."""

    def pause(self, seconds: float) -> bool:
        """Wait; return True at once if the user presses q."""
        time.sleep(seconds)
        return False


class _TerminalKeyboard(Keyboard):
    def pause(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while (remaining := deadline - time.monotonic()) > 0:
            if select.select([sys.stdin], [], [], remaining)[0]:
                typed = os.read(sys.stdin.fileno(), _KEYS_MAX)
                if _QUIT & set(typed):
                    return True
                if not typed:
                    # The terminal is closed: reading again would return at once.
                    return super().pause(remaining)
        return False


@contextmanager
def quit_by_key() -> Iterator[Keyboard]:
    """Yield a keyboard; on a terminal, keys arrive without Enter and are not shown.

    Ctrl-C still raises KeyboardInterrupt.
    """
    if not sys.stdin.isatty():
        yield Keyboard()
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield _TerminalKeyboard()
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
