"""Errors of Iceberg tables."""

from __future__ import annotations


class IcebergTableError(RuntimeError):
    """The rows do not fit the table, or the table is newer than the query's checkpoint."""
