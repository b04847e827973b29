"""Damage that was found in files: told once each, counted, and shown by metrics.

Damage is content that no crash explains: a flipped bit, a segment that is gone, a file that was
truncated or overwritten. A torn tail after a kill or a loss of power is not damage.
"""

from __future__ import annotations

import logging
from collections import Counter
from enum import StrEnum

_log = logging.getLogger(__name__)

# Places that are remembered, so that each is told once; beyond it places are told again.
_PLACES_MAX = 10_000


class DamageKind(StrEnum):
    """What kind of file is damaged, or what is wrong with a log as a whole."""

    # A batch: its checksum, its length, its offsets or its leader epoch.
    BATCH = "batch"
    # Offsets are missing between two batches or two segments.
    GAP = "gap"
    # An offset index or a time index.
    INDEX = "index"
    # The index of aborted transactions.
    TRANSACTIONS = "transactions"
    # A producer snapshot.
    PRODUCERS = "producers"
    # leader-epoch-checkpoint
    EPOCHS = "epochs"
    # A checkpoint file of a data directory.
    CHECKPOINT = "checkpoint"
    # partition.metadata
    IDENTITY = "identity"
    # A file of the metadata log that is not needed; the node refuses to start over others.
    METADATA = "metadata"
    # A log that cannot be opened; its partition is offline.
    LOG = "log"


class DamageRegister:
    """What was found since the process started."""

    __slots__ = ("_places", "counts")

    def __init__(self) -> None:
        # How much was found, by its kind.
        self.counts: Counter[DamageKind] = Counter()
        # Kind, file and position of what was told.
        self._places: set[tuple[DamageKind, str, int]] = set()

    def tell(
        self, kind: DamageKind, path: str, problem: str, action: str, position: int = 0
    ) -> bool:
        """Log and count damage, unless it was told before.

        Args:
            kind: of the damage.
            path: the damaged file, or the directory of a damaged log.
            problem: what is wrong with it.
            action: what was done about it, and what the operator has to do.
            position: where in the file.

        Returns:
            Whether it was news.
        """
        place = (kind, path, position)
        if place in self._places:
            return False
        if len(self._places) >= _PLACES_MAX:
            self._places.clear()
        self._places.add(place)
        self.counts[kind] += 1
        _log.error(
            'Damage found: kind=%s path=%s position=%d problem="%s" action="%s"',
            kind.value,
            path,
            position,
            problem,
            action,
        )
        return True
