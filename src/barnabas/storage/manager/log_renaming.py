"""Renaming of logs that the metadata does not know or that were replaced."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.runtime.rng import Rng
    from barnabas.storage.log.log import Log

_log = logging.getLogger(__name__)


def rename_to_stray(log: Log, rng: Rng, reason: str) -> None:
    """Rename a log's directory to a name that is never opened again."""
    log.close_files()
    parent, _, _ = log.directory.rpartition("/")
    name = log.topic_partition.stray_directory_name(rng.uuid())
    _log.warning("Log set aside: directory=%s new_name=%s reason=%s", log.directory, name, reason)
    log.rename(f"{parent}/{name}", is_last=True)
