"""What a user of the Spark source and sink can get wrong, and what can be lost."""

from __future__ import annotations


class OptionError(ValueError):
    """An option of `format("barnabas")` that is unknown, missing, or has a value it cannot have."""


class DataLossError(RuntimeError):
    """Records that the query has to read are not there any more."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} Some data may have been lost: it was deleted by retention before it was "
            "read, or the topic was deleted or recreated. To go on with what is left, set the "
            "option failOnDataLoss=false; to start anew, use another checkpoint location; to keep "
            "this from happening, raise retention.ms or retention.bytes of the topic."
        )


class RowError(ValueError):
    """A row that cannot be written to a topic."""
