"""Transactions of the producer (KIP-98, KIP-360, KIP-447, KIP-588, KIP-890)."""

from __future__ import annotations
