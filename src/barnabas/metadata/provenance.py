"""The position of an image in the metadata log."""

from __future__ import annotations

from typing import NamedTuple


class Provenance(NamedTuple):
    """Offset, epoch and time of the last record in an image; all -1 for the empty image."""

    offset: int = -1
    epoch: int = -1
    # Append time of that record's batch, ms.
    timestamp: int = -1


BEFORE_ALL_RECORDS = Provenance()
