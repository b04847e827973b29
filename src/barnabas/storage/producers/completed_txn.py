"""A transaction that a marker has ended (Kafka's CompletedTxn)."""

from __future__ import annotations

from typing import NamedTuple


class CompletedTxn(NamedTuple):
    """A transaction ended by a marker."""

    producer_id: int
    first_offset: int
    # Offset of the marker.
    last_offset: int
    is_aborted: bool
