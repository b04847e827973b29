"""The timeout of transactions that never time out: those with two-phase commit (KIP-939)."""

from __future__ import annotations

__all__ = ["NO_TIMEOUT_MS"]

NO_TIMEOUT_MS = 0x7FFF_FFFF
