"""The fetch parameters of one partition of a consumer."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FetchPosition"]


class FetchPosition(NamedTuple):
    """The fetch parameters of one partition; the broker's fetch session caches the last ones."""

    offset: int
    # Epoch of the leader with which the offset is valid.
    leader_epoch: int
    # Limit of the record bytes in a response.
    max_bytes: int
    # All zero if the topic has no id.
    topic_id: bytes
