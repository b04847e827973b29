"""An open transaction that another process can end: EndTxn needs only these facts (KIP-98)."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["OpenTransaction"]


class OpenTransaction(NamedTuple):
    """A transaction whose records are written and which is neither committed nor aborted."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    # Whether its end raises the epoch (KIP-890).
    is_v2: bool
