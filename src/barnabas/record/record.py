"""A decoded record of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Record(NamedTuple):
    """A record with its absolute offset and timestamp.

    A named tuple, which needs one allocation per record. Timestamps are in ms since the epoch, -1
    for none.
    """

    offset: int
    timestamp: int
    # 0 for create time, 1 for log append time.
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
