"""One record as it is handed to whoever looks inside a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Record(NamedTuple):
    """A record with its batch's part (offset, timestamp) worked out.

    A named tuple: one allocation per record. Timestamps are ms since the epoch, -1 for none.
    """

    offset: int
    timestamp: int
    # 0 create time, 1 log append time.
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
