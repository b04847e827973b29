"""The states of a classic group, and which may follow which (Kafka's ClassicGroupState).

        first member joins                 all have joined
EMPTY ----------------------> PREPARING ------------------> COMPLETING
  ^                           REBALANCE <------------------ REBALANCE
  |      nobody has joined       |  ^     member comes, goes    | leader's assignment
  +------------------------------+  |     or changes its mind   v is stored
                                    +----------------------- STABLE
DEAD: deleted, or coordinated by another broker; nothing follows.
"""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """Values are the names that clients see."""

    EMPTY = "Empty"
    # Members are to join again until all have, or their time is over.
    PREPARING_REBALANCE = "PreparingRebalance"
    # A generation has begun; its leader's assignment is awaited.
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


# State -> the states that may come before it.
PREVIOUS_STATES = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}
