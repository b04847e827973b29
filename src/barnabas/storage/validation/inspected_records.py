"""Batches of a leader append that passed their validation, before the log assigns offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from barnabas.record.batch import BatchHeader

# Position and header of each batch.
Batches: TypeAlias = "list[tuple[int, BatchHeader]]"


class InspectedRecords(NamedTuple):
    """Batches that were validated and converted to the topic's format."""

    content: memoryview
    batches: Batches

    @property
    def nbytes(self) -> int:
        """Size of the batches in bytes."""
        return self.content.nbytes


# Batches as sent by the client, or batches after their validation.
LeaderRecords: TypeAlias = memoryview | InspectedRecords
# A client's batch for a joint append, and its header after the validation.
JoinedBatch: TypeAlias = "tuple[memoryview, BatchHeader]"
