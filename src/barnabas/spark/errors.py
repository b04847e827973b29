"""Errors of the Spark source and sink."""

from __future__ import annotations


class OptionError(ValueError):
    """An option of `format("barnabas")` is unknown, missing or has an invalid value."""


class DataLossError(RuntimeError):
    """Records that the query must read no longer exist."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} Some data may have been lost: it was deleted by retention before it was "
            "read, or the topic was deleted or recreated. To continue without them, set the "
            "option failOnDataLoss=false; to start again, use another checkpoint location; to "
            "prevent this, raise retention.ms or retention.bytes of the topic."
        )


class RowError(ValueError):
    """A row cannot be written to a topic."""
