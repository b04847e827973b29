"""States of share groups."""

from __future__ import annotations

from enum import Enum


class ShareGroupState(Enum):
    """The state of a share group; the value is Kafka's name."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"
