"""The states of a classic group and their transitions (Kafka's ClassicGroupState).

        first member joins                 all have joined
EMPTY ----------------------> PREPARING ------------------> COMPLETING
  ^                           REBALANCE <------------------ REBALANCE
  |      no member has joined    |  ^     member joins, leaves  | leader's assignment
  +------------------------------+  |     or changes            v is written
                                    +----------------------- STABLE
DEAD: deleted, or coordinated by another broker. This state is final.
"""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """The state of a classic group. Values are the names in the protocol."""

    EMPTY = "Empty"
    # Members rejoin, until all have joined or the rebalance timeout expires.
    PREPARING_REBALANCE = "PreparingRebalance"
    # A generation has started, and the coordinator waits for the leader's assignment.
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


# The allowed previous states of each state.
PREVIOUS_STATES = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}
