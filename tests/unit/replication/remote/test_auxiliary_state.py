"""Auxiliary states are read a few at a time, and their content is checked."""

from __future__ import annotations

import pytest

from barnabas.replication.remote.auxiliary_state import (
    READS_MAX,
    TIMEOUT_MS,
    AuxiliaryStates,
    LoadProblem,
)
from barnabas.replication.remote.segment_end import AuxiliaryState, epochs_of
from barnabas.storage.files.checkpoint import CheckpointError
from barnabas.storage.files.leader_epoch_cache import EpochEntry, encode_epochs
from unit.replication.tiered_leader import WHERE, TieredFollower


@pytest.fixture
def broker() -> TieredFollower:
    """Return a broker with one remote segment, which has offsets 0 to 2."""
    broker = TieredFollower()
    broker.append(b"a", b"b", b"c")
    broker.copy()
    return broker


@pytest.fixture
def states(broker) -> AuxiliaryStates:
    return AuxiliaryStates(broker.access, broker.node.wheel)


def load(states: AuxiliaryStates, offset: int = 2) -> list[AuxiliaryState | LoadProblem]:
    """Load the state of the segment with an offset; the outcome is added to the returned list."""
    outcome: list[AuxiliaryState | LoadProblem] = []
    states.load(WHERE, 0, offset, outcome.append)
    assert not outcome, "the callback runs later"
    return outcome


def test_a_state_has_the_end_of_the_segment_with_the_record(broker, states) -> None:
    outcome = load(states, offset=1)
    broker.run_for(200)
    (state,) = outcome
    assert isinstance(state, AuxiliaryState)
    assert (state.offset, state.epochs) == (3, [(0, 0)])


@pytest.mark.parametrize("is_read", [False, True])
def test_an_unknown_segment_is_a_usual_problem(broker, states, is_read: bool) -> None:
    if not is_read:
        broker.metadata.unread.add(WHERE)
    outcome = load(states, offset=3)
    broker.run_for(1)
    assert [isinstance(each, LoadProblem) and each.is_usual for each in outcome] == [True]


def test_only_a_few_states_are_read_at_a_time(broker, states) -> None:
    """The pool also serves consumers."""
    outcomes = [load(states) for _ in range(3 * READS_MAX)]
    assert broker.pool.running == READS_MAX
    assert broker.pool.queued == 0
    broker.run_for(2_000)
    assert all(isinstance(each, AuxiliaryState) for outcome in outcomes for each in outcome)
    assert [len(each) for each in outcomes] == [1] * len(outcomes)


def test_reads_that_hang_keep_their_places(broker, states) -> None:
    """Otherwise they would take all threads of the pool, one after the other."""
    broker.node.host.worker_pools.delay_max_ms = 1e9
    hanging = [load(states) for _ in range(READS_MAX)]
    waiting = load(states)
    broker.run_for(TIMEOUT_MS + 1)
    assert all(isinstance(each[0], LoadProblem) for each in (*hanging, waiting))
    again = load(states)
    assert broker.pool.running == READS_MAX
    broker.run_for(TIMEOUT_MS + 1)
    assert isinstance(again[0], LoadProblem)


def test_a_full_queue_of_the_pool_is_a_usual_problem(broker, states) -> None:
    broker.pool.resize(1)
    broker.pool.queue_max = 0
    outcomes = [load(states) for _ in range(3)]
    broker.run_for(1_000)
    problems = [each[0] for each in outcomes if isinstance(each[0], LoadProblem)]
    assert len(problems) == 2
    assert all(each.is_usual for each in problems)


def test_an_unexpected_error_of_a_store_is_a_problem(broker, states, monkeypatch) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError("a fault in a custom store")

    monkeypatch.setattr(broker.store.objects, "read_indexes", fail)
    outcome = load(states)
    broker.run_for(200)
    assert isinstance(outcome[0], LoadProblem)
    assert "a fault in a custom store" in outcome[0].text


def test_epochs_are_read_as_kafka_writes_them() -> None:
    assert epochs_of(b"0\n2\n0 0\n5 7\n", 9) == [(0, 0), (5, 7)]
    assert epochs_of(encode_epochs([EpochEntry(1, 2), EpochEntry(3, 4)]), 4) == [(1, 2), (3, 4)]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"0\n0\n",
        b"0\n1\n0 0",
        b"1\n1\n0 0\n",
        b"0\n2\n0 0\n",
        b"0\n1\n0 0 0\n",
        b"0\n1\na b\n",
        b"0\n2\n0 0\n0 1\n",
        b"0\n2\n1 0\n0 1\n",
        b"0\n2\n0 3\n1 3\n",
        b"0\n1\n-1 0\n",
        b"0\n1\n0 -1\n",
        b"0\n2\n0 0\n1 10\n",
    ],
)
def test_other_epochs_are_damage(content: bytes) -> None:
    with pytest.raises(CheckpointError):
        epochs_of(content, 9)
