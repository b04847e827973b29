"""`barnabas consume --on-error skip`: count, report and skip unreadable data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.output import warning
from barnabas.cli.common.printable import counted
from barnabas.client.errors import CorruptRecordsError, RecordDeserializationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.cli.consume.templates import Render
    from barnabas.client.fetch.record_set import ConsumerRecord
    from barnabas.record.compiled import CompiledRecord

__all__ = ["ErrorPolicy"]

# Limit for individually reported errors. At the end, only the total is reported.
_REPORTED_MAX = 5


class ErrorPolicy:
    """Decides whether an unreadable record or batch ends the command, and counts the skipped.

    Args:
        skip: Whether to continue; otherwise the first error is raised.
    """

    def __init__(self, *, skip: bool = False) -> None:
        self.skip = skip
        # Number of records that could not be deserialized.
        self.records = 0
        # Number of corrupt batches; their number of records is unknown.
        self.batches = 0
        # Called for each skipped record and batch.
        self.on_skip: Callable[[CorruptRecordsError | RecordDeserializationError], object] = _ignore

    def handle(self, error: CorruptRecordsError | RecordDeserializationError) -> None:
        """Count the error and print a warning.

        Raises:
            CorruptRecordsError: The error itself, unless errors are skipped.
            RecordDeserializationError: The error itself, unless errors are skipped.
        """
        if not self.skip:
            raise error
        self.on_skip(error)
        is_reported = self.records + self.batches < _REPORTED_MAX
        if isinstance(error, CorruptRecordsError):
            self.batches += 1
            last = error.next_offset - 1
            span = f"offset {error.offset}" + (f" to {last}" if last > error.offset else "")
            reason = "a corrupt batch"
        else:
            self.records += 1
            span = f"offset {error.offset}"
            reason = f"the {error.what} cannot be deserialized: {error.__cause__}"
        if is_reported:
            warning(f"skipped {error.partition} {span}: {reason}")

    def render(
        self,
        render: Render,
        records: Sequence[CompiledRecord] | Sequence[ConsumerRecord],
        limit: int | None,
    ) -> tuple[bytes, int, int | None]:
        """Render records one by one, without those that cannot be deserialized.

        Args:
            render: Renders records of their partition.
            records: All wanted records.
            limit: The maximum number of printed records; None for no limit.

        Returns:
            The text, the number of printed records, and the offset after the last printed record if
                the limit was reached (else None).
        """
        pieces: list[bytes] = []
        for record in records:
            try:
                pieces.append(render([record]))
            except RecordDeserializationError as error:
                self.handle(error)
                continue
            if len(pieces) == limit:
                return b"".join(pieces), len(pieces), record.offset + 1
        return b"".join(pieces), len(pieces), None

    def warn_of_total(self) -> None:
        """Print the number of skipped records and batches, if there are any."""
        counts = []
        if self.records:
            counts.append(counted(self.records, "record"))
        if self.batches:
            counts.append(f"{self.batches} corrupt batch{'' if self.batches == 1 else 'es'}")
        if counts:
            warning(f"skipped {' and '.join(counts)} in total")


def _ignore(_error: CorruptRecordsError | RecordDeserializationError) -> None:
    pass
