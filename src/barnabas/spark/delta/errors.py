"""What can be wrong with a Delta table that a query writes to."""

from __future__ import annotations


class DeltaTableError(RuntimeError):
    """The rows do not fit the table, or the table is not where the query left it."""
