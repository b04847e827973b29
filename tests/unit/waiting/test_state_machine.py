"""State machines, and the table of the replica fetcher."""

from __future__ import annotations

import pytest

from barnabas.replication.fetcher.fetch_states import FETCHER_STATES, FetcherEvent, FetcherState
from barnabas.waiting.state_machine import StateMachine


def machine() -> StateMachine[FetcherState, FetcherEvent]:
    return StateMachine("fetcher", FetcherState.IDLE, FETCHER_STATES)


def test_events_change_the_state_as_the_table_says() -> None:
    fetcher = machine()
    assert fetcher.allows(FetcherEvent.FETCH_SENT)
    fetcher.on(FetcherEvent.FETCH_SENT)
    assert fetcher.state is FetcherState.FETCHING
    fetcher.on(FetcherEvent.FETCH_ABANDONED)
    assert fetcher.state is FetcherState.IDLE


def test_an_event_that_a_state_lacks_fails_an_assertion() -> None:
    fetcher = machine()
    assert not fetcher.allows(FetcherEvent.SYNCED)
    with pytest.raises(AssertionError, match="fetcher: event SYNCED is not allowed in state IDLE"):
        fetcher.on(FetcherEvent.SYNCED)
    assert fetcher.state is FetcherState.IDLE


def test_a_fetcher_can_be_closed_in_each_state_and_then_does_nothing() -> None:
    assert set(FETCHER_STATES) == set(FetcherState)
    assert {event for events in FETCHER_STATES.values() for event in events} == set(FetcherEvent)
    for events in FETCHER_STATES.values():
        assert events[FetcherEvent.CLOSED] is FetcherState.CLOSED
    assert set(FETCHER_STATES[FetcherState.CLOSED]) == {FetcherEvent.CLOSED}
