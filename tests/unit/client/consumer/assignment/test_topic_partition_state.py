"""The state of an assigned partition, and where its reading begins without a position."""

from __future__ import annotations

import pytest

from barnabas.client.consumer.assignment.topic_partition_state import (
    TRANSITIONS,
    OffsetReset,
    PositionState,
    TopicPartitionState,
)
from barnabas.client.errors import ClientConfigError
from barnabas.client.fetch.fetch_buffer import FetchState
from barnabas.client.fetch.offset_lookups import EARLIEST, LATEST
from barnabas.client.topic_partition import TopicPartition

NOW_MS = 1_000_000_000_000
TP = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("earliest", EARLIEST),
        ("LATEST", LATEST),
        ("by_duration:PT1S", NOW_MS - 1_000),
        ("by_duration:P1DT2H3M4.5S", NOW_MS - (((24 + 2) * 60 + 3) * 60_000 + 4_500)),
        ("by_duration:P36500000D", 0),
    ],
)
def test_a_strategy_gives_the_timestamp_to_look_up(text: str, asked: int) -> None:
    assert OffsetReset.parse(text).timestamp(NOW_MS) == asked


def test_reset_none_selects_no_offset() -> None:
    assert OffsetReset.parse("none").is_none


@pytest.mark.parametrize(
    "text", ["", "first", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:1h"]
)
def test_an_unknown_strategy_is_rejected_with_the_valid_ones(text: str) -> None:
    with pytest.raises(ClientConfigError, match="earliest, latest, none, by_duration"):
        OffsetReset.parse(text)


def fetching(offset: int = 5) -> TopicPartitionState:
    state = TopicPartitionState(TP)
    state.seek(offset)
    state.start(offset)
    return state


def test_a_seek_with_a_leader_epoch_waits_for_validation() -> None:
    state = TopicPartitionState(TP)
    state.seek(5, 3)
    assert state.state is PositionState.AWAIT_VALIDATION
    assert state.has_position
    state.validated()
    assert state.state is PositionState.FETCHING


def test_a_reset_discards_the_position() -> None:
    state = fetching()
    state.request_reset(OffsetReset.earliest())
    assert (state.state, state.offset, state.has_position) == (PositionState.AWAIT_RESET, -1, False)


def test_each_change_of_the_state_ends_the_requests_of_the_state_before() -> None:
    state = TopicPartitionState(TP)
    state.is_requesting, state.failures = True, 3
    version = state.version
    state.seek(5)
    assert (state.is_requesting, state.failures) == (False, 0)
    assert state.version > version


def test_only_a_position_that_awaits_validation_can_be_validated() -> None:
    with pytest.raises(AssertionError, match="FETCHING"):
        fetching().validated()
    with pytest.raises(AssertionError, match="INITIALIZING"):
        TopicPartitionState(TP).request_validation()


def test_fetching_starts_only_at_the_position() -> None:
    state = TopicPartitionState(TP)
    with pytest.raises(AssertionError, match="INITIALIZING"):
        state.start(0)
    state.seek(5)
    with pytest.raises(AssertionError, match="6, 5"):
        state.start(6)


def test_the_position_never_passes_the_fetch_offset() -> None:
    with pytest.raises(AssertionError, match="PositionsInOrder: t-0 offset=6 fetch_offset=5"):
        fetching(5).advance(6, 0)


def test_paused_and_revoked_partitions_are_not_fetched() -> None:
    state = fetching()
    assert state.is_fetchable
    for name in ("is_paused", "is_revoking"):
        setattr(state, name, True)
        assert not state.is_fetchable
        setattr(state, name, False)
    assert state.is_fetchable


def test_every_state_can_be_left_by_a_seek_and_by_a_reset() -> None:
    for state in PositionState:
        assert (state, PositionState.FETCHING) in TRANSITIONS
        assert (state, PositionState.AWAIT_RESET) in TRANSITIONS


@pytest.mark.parametrize("flag", ["is_stopped", "is_delayed", "is_paused", "is_revoking"])
def test_a_partition_is_not_fetched_while_anything_holds_it_back(flag: str) -> None:
    state = fetching()
    assert state.is_fetchable
    setattr(state, flag, True)
    assert not state.is_fetchable
    # The short form is the same as the general one.
    assert state.is_fetchable == FetchState.is_fetchable.fget(state)  # type: ignore[attr-defined]
