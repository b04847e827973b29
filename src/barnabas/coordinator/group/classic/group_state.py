"""The states of a classic group, and the events that change them (Kafka's ClassicGroupState).

      REBALANCE_STARTED               JOIN_COMPLETED
EMPTY -----------------> PREPARING  -----------------> COMPLETING
  ^                      REBALANCE  <----------------- REBALANCE
  |     ALL_MEMBERS_LEFT   |   ^    REBALANCE_STARTED      |
  +------------------------+   |                           | ASSIGNMENT_WRITTEN
                               |     REBALANCE_STARTED     v
                               +------------------------ STABLE
"""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """The state of a classic group. Values are the names in the protocol."""

    # The group has no members. It may have committed offsets.
    EMPTY = "Empty"
    # Members rejoin, until all have joined or the rebalance timeout expires.
    PREPARING_REBALANCE = "PreparingRebalance"
    # A generation has started, and the coordinator waits for the leader's assignment.
    COMPLETING_REBALANCE = "CompletingRebalance"
    # The assignment of the generation is written.
    STABLE = "Stable"
    # Deleted, or coordinated by another broker. This state is final.
    DEAD = "Dead"


class GroupEvent(Enum):
    """An event that changes the state of a group. Values tell what triggers it."""

    REBALANCE_STARTED = (
        "a member joins, leaves, changes its subscription or misses a timeout; or the assignment "
        "cannot be written"
    )
    JOIN_COMPLETED = "all members have joined, or the rebalance timeout has expired"
    ALL_MEMBERS_LEFT = "no member is left when the rebalance ends"
    ASSIGNMENT_WRITTEN = "the leader's assignment is committed"
    REMOVED = "the group is deleted or expires, or this broker no longer coordinates it"


# The state after each event, by the state before it. All other events are errors of the caller.
TRANSITIONS = {
    GroupEvent.REBALANCE_STARTED: {
        GroupState.EMPTY: GroupState.PREPARING_REBALANCE,
        GroupState.COMPLETING_REBALANCE: GroupState.PREPARING_REBALANCE,
        GroupState.STABLE: GroupState.PREPARING_REBALANCE,
    },
    GroupEvent.JOIN_COMPLETED: {GroupState.PREPARING_REBALANCE: GroupState.COMPLETING_REBALANCE},
    GroupEvent.ALL_MEMBERS_LEFT: {GroupState.PREPARING_REBALANCE: GroupState.EMPTY},
    GroupEvent.ASSIGNMENT_WRITTEN: {GroupState.COMPLETING_REBALANCE: GroupState.STABLE},
    GroupEvent.REMOVED: {
        GroupState.EMPTY: GroupState.DEAD,
        GroupState.PREPARING_REBALANCE: GroupState.DEAD,
        GroupState.COMPLETING_REBALANCE: GroupState.DEAD,
        GroupState.STABLE: GroupState.DEAD,
    },
}
