"""Items that are written, then read once in the same order, without keeping them in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from barnabas.runtime.spool import Spool

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T", bound=msgspec.Struct)


class SpooledItems(Generic[T]):
    """Structs of one class, as lines of JSON in a temporary file."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._spool = Spool()
        self._encoder = msgspec.json.Encoder()
        # Number of items that were added.
        self.count = 0

    def add(self, item: T) -> None:
        """Add an item. No item is added after the first read.

        Raises:
            SpoolError: The temporary file cannot be written.
        """
        self._spool.write(self._encoder.encode(item) + b"\n")
        self.count += 1

    def read(self) -> Iterator[T]:
        """Yield the items once."""
        decode = msgspec.json.Decoder(self._kind).decode
        rest = b""
        while piece := self._spool.read():
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield decode(line)
        self._spool.close()
