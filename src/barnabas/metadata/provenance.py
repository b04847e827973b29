"""How far into the metadata log an image has got."""

from __future__ import annotations

from typing import NamedTuple


class Provenance(NamedTuple):
    """The last record that an image contains; all -1 before the first."""

    offset: int = -1
    epoch: int = -1
    # Append time of that record's batch, ms.
    timestamp: int = -1


BEFORE_ALL_RECORDS = Provenance()
