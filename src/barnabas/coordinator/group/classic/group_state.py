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


# Next state by event. An event that a state lacks cannot happen in it.
GROUP_STATES: dict[GroupState, dict[GroupEvent, GroupState]] = {
    GroupState.EMPTY: {
        GroupEvent.REBALANCE_STARTED: GroupState.PREPARING_REBALANCE,
        GroupEvent.REMOVED: GroupState.DEAD,
    },
    GroupState.PREPARING_REBALANCE: {
        GroupEvent.JOIN_COMPLETED: GroupState.COMPLETING_REBALANCE,
        GroupEvent.ALL_MEMBERS_LEFT: GroupState.EMPTY,
        GroupEvent.REMOVED: GroupState.DEAD,
    },
    GroupState.COMPLETING_REBALANCE: {
        GroupEvent.ASSIGNMENT_WRITTEN: GroupState.STABLE,
        GroupEvent.REBALANCE_STARTED: GroupState.PREPARING_REBALANCE,
        GroupEvent.REMOVED: GroupState.DEAD,
    },
    GroupState.STABLE: {
        GroupEvent.REBALANCE_STARTED: GroupState.PREPARING_REBALANCE,
        GroupEvent.REMOVED: GroupState.DEAD,
    },
    GroupState.DEAD: {},
}
