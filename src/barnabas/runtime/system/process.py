"""The interface to the process: its id, which differs after a fork, and its environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def process_id() -> int:
    """Return the id of the running process, which differs between a forked child and its parent."""
    return os.getpid()


def environment() -> Mapping[str, str]:
    """Return the environment variables of the process."""
    return os.environ
