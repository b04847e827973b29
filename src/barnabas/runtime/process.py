"""The door to the process itself: who we are, to notice that we were forked."""

from __future__ import annotations

import os


def process_id() -> int:
    """The running process's id; a child made by fork sees another one than its parent."""
    return os.getpid()
