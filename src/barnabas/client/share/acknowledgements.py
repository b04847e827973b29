"""The acknowledgements of one partition that one request carries, and their wire format."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.share.acknowledge_type import AcknowledgeType

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["AckBatch", "Acknowledgements"]

# A run of at least this many equal types becomes a separate batch (18 bytes). A shorter run takes
# fewer bytes inside a batch with one byte for each record.
_LONG_RUN = 18


class AckBatch(NamedTuple):
    """Consecutive offsets: `types` has one element for all of them, or one for each."""

    first_offset: int
    # Inclusive.
    last_offset: int
    types: tuple[int, ...]


class Acknowledgements:
    """Types by offset, and ranges of offsets with one type.

    Ranges are for gaps and for corrupt batches: a broker may report ranges of any length, so the
    offsets in them are never enumerated.
    """

    __slots__ = ("_ranges", "_types")

    def __init__(self) -> None:
        # Types of single records by offset; the last call of `add` wins.
        self._types: dict[int, int] = {}
        # (first offset, last offset, type); they overlap neither each other nor `_types`.
        self._ranges: list[tuple[int, int, int]] = []

    def __bool__(self) -> bool:
        return bool(self._types or self._ranges)

    @property
    def offsets(self) -> frozenset[int]:
        """Offsets of the acknowledged records; gaps and corrupt batches are not included."""
        return frozenset(self._types)

    @property
    def renewed(self) -> list[int]:
        """Offsets with type RENEW."""
        return [o for o, kind in self._types.items() if kind == AcknowledgeType.RENEW]

    @property
    def has_renewals(self) -> bool:
        """Whether a record has type RENEW."""
        return AcknowledgeType.RENEW in self._types.values()

    def add(self, offset: int, kind: int) -> None:
        """Acknowledge one record; replace an earlier acknowledgement that was not sent yet."""
        for index, (first, last, range_kind) in enumerate(self._ranges):
            if first <= offset <= last:
                parts = [(first, offset - 1, range_kind), (offset + 1, last, range_kind)]
                self._ranges[index : index + 1] = [part for part in parts if part[0] <= part[1]]
                break
        self._types[offset] = kind

    def add_range(self, first: int, last: int, kind: int) -> None:
        """Acknowledge all offsets from `first` to `last` (inclusive)."""
        assert first <= last, (first, last)
        self._ranges.append((first, last, kind))

    def merge(self, other: Acknowledgements) -> None:
        """Add all acknowledgements of `other`."""
        self._types.update(other._types)
        self._ranges += other._ranges

    def batches(self) -> list[AckBatch]:
        """Return the batches of a request, in offset order and without overlaps."""
        found: list[AckBatch] = []
        # Adjacent short runs, which become one batch with a type for each offset.
        first = 0
        types: list[int] = []
        for start, last, kind in self._runs():
            size = last - start + 1
            if types and start == first + len(types) and size < _LONG_RUN:
                types += [kind] * size
                continue
            _append(found, first, types)
            types = []
            if size < _LONG_RUN:
                first, types = start, [kind] * size
            else:
                found.append(AckBatch(start, last, (kind,)))
        _append(found, first, types)
        return found

    def _runs(self) -> Iterator[tuple[int, int, int]]:
        """Yield the longest runs of consecutive offsets with the same type, in offset order."""
        singles = [(offset, offset, kind) for offset, kind in self._types.items()]
        run: tuple[int, int, int] | None = None
        for first, last, kind in sorted(singles + self._ranges):
            if run is not None and run[1] + 1 == first and run[2] == kind:
                run = (run[0], last, kind)
                continue
            if run is not None:
                yield run
            run = (first, last, kind)
        if run is not None:
            yield run


def _append(found: list[AckBatch], first: int, types: list[int]) -> None:
    if types:
        kinds = (types[0],) if len(set(types)) == 1 else tuple(types)
        found.append(AckBatch(first, first + len(types) - 1, kinds))
