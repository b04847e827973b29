"""Search for the batch of an offset, from a position that an index gives.

An index entry may be damaged, and so may the batches. The search shows which of the two it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from barnabas.storage.errors import DamagedLogError
from barnabas.storage.file_names import LOG_SUFFIX
from barnabas.storage.segment.batch_scan import whole_headers

if TYPE_CHECKING:
    from barnabas.runtime.disk import File


class WrongEntryError(Exception):
    """An index entry does not lead to a batch with its offset."""


class BatchPlace(msgspec.Struct, frozen=True, gc=False):
    """Position of a batch in its segment."""

    position: int
    size: int
    base_offset: int


class SearchedSegment(Protocol):
    """The part of a segment that the search uses."""

    base_offset: int
    # Bytes of batches in the file.
    size: int

    @property
    def file(self) -> File:
        """The open file of batches."""
        ...

    def path(self, suffix: str) -> str:
        """Return the path of the file with that suffix."""
        ...


def find_batch(
    segment: SearchedSegment,
    position: int,
    indexed: int,
    offset: int,
    may_skip: bool,
) -> BatchPlace | None:
    """Return the first batch that ends at or after `offset`; None if there is none.

    Args:
        segment: where to search.
        position: where the search begins, at the start of a batch.
        indexed: last offset of that batch, or of a later batch of the same append (as in Kafka's
            index).
        offset: the offset to find.
        may_skip: whether offsets may be missing between batches (the log is compacted).

    Raises:
        WrongEntryError: no batch of that offset begins at the position.
        DamagedLogError: a batch after the position is damaged.
    """
    first, next_offset = position, segment.base_offset
    try:
        for at, header in whole_headers(segment.file, position, segment.size):
            base_offset = header.base_offset
            is_indexed = at == first and first > 0
            if is_indexed and (base_offset < segment.base_offset or header.last_offset > indexed):
                raise WrongEntryError
            if base_offset != next_offset and not is_indexed:
                _check_jump(segment, at, next_offset, base_offset, may_skip)
            next_offset = header.next_offset
            if next_offset > offset:
                return BatchPlace(at, header.size, base_offset)
    except DamagedLogError as error:
        if first and error.position == first:
            raise WrongEntryError from None
        raise
    if first and first >= segment.size:
        raise WrongEntryError
    return None


def _check_jump(
    segment: SearchedSegment, position: int, expected: int, base_offset: int, may_skip: bool
) -> None:
    if base_offset < expected:
        problem = f"base offset {base_offset} follows offset {expected - 1}"
        raise DamagedLogError(segment.path(LOG_SUFFIX), position, problem)
    if not may_skip:
        # Kafka continues with the next record, and its consumers never notice the gap.
        problem = f"offsets {expected} to {base_offset - 1} are missing before it"
        raise DamagedLogError(segment.path(LOG_SUFFIX), position, problem, is_gap=True)
