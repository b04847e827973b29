"""The states of a consumer group (KIP-848). They follow from its epochs and its members.

A group is DEAD once it is removed. Otherwise the first row that applies counts:

| state | condition |
|---|---|
| EMPTY | the group has no members |
| ASSIGNING | the target assignment is older than the group epoch |
| RECONCILING | a member has not reached the target assignment |
| STABLE | all members have reached it |
"""

from __future__ import annotations

from enum import Enum


class ConsumerGroupState(Enum):
    """The state of a consumer group. Values are the names in the protocol."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"
