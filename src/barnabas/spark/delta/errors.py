"""Errors of Delta tables."""

from __future__ import annotations


class DeltaTableError(RuntimeError):
    """The rows do not fit the table, or the table is newer than the query's checkpoint."""
