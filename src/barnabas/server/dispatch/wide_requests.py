"""Limit for the partitions of Produce and Fetch, which are served in one turn for the most part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sized

# Shorter requests have at most a few thousand partitions.
WIDE_BYTES = 64 * 1024


def check_width(topics: Iterable[Sized], most: int) -> None:
    """Check the number of partitions in a request.

    Args:
        topics: the partitions of each topic.
        most: the limit.

    Raises:
        ProtocolError: there are more. The connection is closed.
    """
    partitions = sum(map(len, topics))
    if partitions > most:
        raise ProtocolError(f"{partitions} partitions: the limit is {most}")
