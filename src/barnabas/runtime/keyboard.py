"""Single keys of a terminal, without Enter."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnabas.runtime.system_calls import has_input

if TYPE_CHECKING:
    from collections.abc import Iterator

_KEYS_MAX = 64


@contextmanager
def single_keys() -> Iterator[bool]:
    """Make keys arrive without Enter, and without being shown; Ctrl-C still interrupts.

    Yields:
        Whether the terminal can do so; False on Windows.
    """
    try:
        import termios
        import tty
    except ImportError:
        yield False
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield True
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def typed_keys(timeout_s: float) -> bytes | None:
    """Return the next keys; None if the user types nothing, and b"" if the terminal is closed."""
    descriptor = sys.stdin.fileno()
    return os.read(descriptor, _KEYS_MAX) if has_input(descriptor, timeout_s) else None
