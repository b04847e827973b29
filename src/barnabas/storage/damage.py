"""Damage found in files: reported once per place, counted, and exposed as metrics.

Damage is content that no crash explains: a flipped bit, a missing segment, a file that was
truncated or overwritten. A torn tail after a kill or a power loss is not damage.
"""

from __future__ import annotations

import logging
from collections import Counter
from enum import StrEnum

_log = logging.getLogger(__name__)

# Maximum number of remembered places; beyond it, places may be reported again.
_PLACES_MAX = 10_000


class DamageKind(StrEnum):
    """The kind of file that is damaged, or the problem of a whole log."""

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
    # A metadata log file that is not needed. Damage to other files prevents startup.
    METADATA = "metadata"
    # A log that cannot be opened; its partition is offline.
    LOG = "log"


class DamageRegister:
    """Damage found since the process started."""

    __slots__ = ("_places", "counts")

    def __init__(self) -> None:
        # Number of damaged places by kind.
        self.counts: Counter[DamageKind] = Counter()
        # Kind, file and position of reported damage.
        self._places: set[tuple[DamageKind, str, int]] = set()

    def report(
        self, kind: DamageKind, path: str, problem: str, action: str, position: int = 0
    ) -> bool:
        """Log and count damage, unless it was already reported.

        Args:
            kind: kind of the damage.
            path: the damaged file, or the directory of a damaged log.
            problem: the problem of the file.
            action: the action of the broker, and the action that the operator has to take.
            position: position in the file.

        Returns:
            Whether the damage was new.
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
