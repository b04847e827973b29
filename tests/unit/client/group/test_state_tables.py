"""Tables of states and events: closed, without unreachable states, and binding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.client.group.classic_member_state import (
    JOIN_STEPS,
    MEMBER_STATES,
    ClassicMemberState,
    ClassicMemberStatus,
    JoinEvent,
    JoinStep,
)
from barnabas.client.group.consumer_member import (
    CONSUMER_MEMBER_STATES,
    ConsumerMemberEvent,
    ConsumerMemberState,
)
from barnabas.client.group.group_calls import HEARTBEAT_STATES, HeartbeatEvent, HeartbeatState
from barnabas.client.share.share_membership import (
    SHARE_MEMBER_STATES,
    ShareMemberEvent,
    ShareMemberState,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

TABLES: dict[str, tuple[Mapping[Any, Mapping[Any, Any]], Any]] = {
    "classic member": (MEMBER_STATES, ClassicMemberState.UNJOINED),
    "steps of a join": (JOIN_STEPS, JoinStep.MATCH_PATTERN),
    "member of the consumer protocol": (CONSUMER_MEMBER_STATES, ConsumerMemberState.UNJOINED),
    "member of a share group": (SHARE_MEMBER_STATES, ShareMemberState.UNJOINED),
    "heartbeats": (HEARTBEAT_STATES, HeartbeatState.STOPPED),
}


@pytest.mark.parametrize("name", TABLES)
def test_every_state_has_a_row_and_can_be_reached(name: str) -> None:
    table, initial = TABLES[name]
    assert set(table) == set(type(initial))
    reached, found = {initial}, [initial]
    while found:
        following = set(table[found.pop()].values()) - reached
        reached |= following
        found += following
    assert reached == set(table)


def events_of(*names: str) -> set[Any]:
    return {event for name in names for row in TABLES[name][0].values() for event in row}


def test_every_event_occurs_in_a_table() -> None:
    assert events_of("classic member", "steps of a join") == set(JoinEvent)
    assert events_of("member of the consumer protocol") == set(ConsumerMemberEvent)
    assert events_of("member of a share group") == set(ShareMemberEvent)
    assert events_of("heartbeats") == set(HeartbeatEvent)


def test_an_event_that_the_table_does_not_allow_is_refused_with_event_and_state() -> None:
    status = ClassicMemberStatus()
    with pytest.raises(AssertionError, match="SYNCED is not allowed in state UNJOINED"):
        status.on_synced()


def test_a_generation_that_is_lost_during_a_rebalance_gives_up_partitions_again() -> None:
    status = ClassicMemberStatus()
    status.on_pattern_matched()
    status.on_give_up_started()
    status.on_join_sent()
    status.on_joined(3, "m", "range")
    status.reset("for a test")
    assert status.step is JoinStep.APPLY_AFTER_LOSS
    status.on_join_failed()
    assert status.step is JoinStep.GIVE_UP_PARTITIONS


def test_a_join_that_fails_is_repeated_without_giving_up_partitions() -> None:
    status = ClassicMemberStatus()
    status.on_pattern_matched()
    status.on_give_up_started()
    status.on_join_sent()
    status.on_join_failed()
    assert status.step is JoinStep.SEND_JOIN
