"""The interface to the process id, which lets code detect that the process was forked."""

from __future__ import annotations

import os


def process_id() -> int:
    """Return the id of the running process, which differs between a forked child and its parent."""
    return os.getpid()
