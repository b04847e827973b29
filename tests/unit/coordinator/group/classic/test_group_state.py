"""The state table of classic groups: which events are allowed, and what a group asserts."""

from __future__ import annotations

import pytest

from barnabas.coordinator.group.classic.classic_group import (
    GROUP_STATES,
    ClassicGroup,
    GroupEvent,
    GroupState,
)
from barnabas.coordinator.group.classic.classic_member import (
    ClassicMember,
    MemberIdentity,
    MemberTimes,
)
from barnabas.coordinator.group.group_base import GroupMemory


def group_in(state: GroupState) -> ClassicGroup:
    """Make a group that has one member, unless its state is EMPTY."""
    group = ClassicGroup("g", state, 0, GroupMemory())
    if state is not GroupState.EMPTY:
        identity = MemberIdentity("m", None, "client", "/127.0.0.1", "consumer")
        group.add(ClassicMember(identity, MemberTimes(10_000, 20_000), {"range": b""}))
        group.protocol_name = "range"
    return group


def test_each_state_but_dead_can_be_entered_and_left() -> None:
    entered = {after for events in GROUP_STATES.values() for after in events.values()}
    assert entered == set(GROUP_STATES) == set(GroupState)
    assert [state for state, events in GROUP_STATES.items() if not events] == [GroupState.DEAD]
    assert {event for events in GROUP_STATES.values() for event in events} == set(GroupEvent)


@pytest.mark.parametrize("event", GroupEvent)
@pytest.mark.parametrize("state", GroupState)
def test_an_event_that_the_table_lacks_is_an_error(state: GroupState, event: GroupEvent) -> None:
    group = group_in(state)
    after = GROUP_STATES[state].get(event)
    if event is GroupEvent.ALL_MEMBERS_LEFT:
        group.remove("m")
        group.protocol_name = None
    if after is None:
        with pytest.raises(AssertionError, match=f"group g: event {event.name} is not allowed"):
            group.on_event(event, 5)
        assert group.state is state
    else:
        group.on_event(event, 5)
        assert (group.previous_state, group.state, group.state_timestamp) == (state, after, 5)


def test_a_group_with_members_cannot_become_empty() -> None:
    group = group_in(GroupState.PREPARING_REBALANCE)
    with pytest.raises(AssertionError, match=r"GroupStateMatchesMembers: group=g .*members="):
        group.on_event(GroupEvent.ALL_MEMBERS_LEFT, 5)


def test_a_generation_needs_a_protocol_that_all_members_support() -> None:
    group = group_in(GroupState.PREPARING_REBALANCE)
    group.protocol_name = "sticky"
    with pytest.raises(AssertionError, match=r"GroupStateMatchesMembers: .*protocol=sticky"):
        group.on_event(GroupEvent.JOIN_COMPLETED, 5)
