"""The consumer: positions, fetched records, commits and its two faces' common core (F1 to F6)."""

from __future__ import annotations
