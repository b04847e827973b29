"""A batch of an append, as the segment indexes it."""

from __future__ import annotations

import msgspec


class PlacedBatch(msgspec.Struct, gc=False):
    """Place, offsets and timestamp of one batch within an append."""

    # Position of the batch in the bytes of the append.
    position: int
    # Size of the whole batch in bytes.
    size: int
    last_offset: int
    # Largest timestamp of the batch in ms; -1 without one.
    max_timestamp: int
