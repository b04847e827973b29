"""The transaction coordinator over a real log in virtual time: markers, timeouts, loading."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from barnabas.coordinator.transaction.decisions import NO_TIMEOUT_MS, EndRequest, Initialization
from barnabas.coordinator.transaction.transaction_metadata import (
    EPOCH_MAX,
    Producer,
    TransactionMetadata,
    TransactionState,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.storage.topic_partition import TopicPartition
from unit.coordinator.transaction.transaction_world import CONFIG, ID, P0, P1, TIMEOUT_MS, World
from unit.replication.replica_set import LEADER

WITH_TWO_PHASES = msgspec.structs.replace(CONFIG, transaction_two_phase_commit_enable=True)


def fenced_in(world: World) -> ErrorCode:
    """Return the response to a commit after the coordinator has aborted."""
    return ErrorCode.INVALID_TXN_STATE if world.version == 2 else ErrorCode.PRODUCER_FENCED


@pytest.fixture(params=[0, 1, 2])
def world(request: pytest.FixtureRequest) -> World:
    made = World()
    made.version = request.param
    return made


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_is_complete_when_its_markers_are_written(
    world: World, is_commit: bool
) -> None:
    producer = world.producer()
    assert world.add(producer, P0) is ErrorCode.NONE
    assert world.add(producer, P0, P1) is ErrorCode.NONE
    ended = world.end(producer, is_commit)
    assert isinstance(ended, TransactionMetadata)
    assert world.state().is_prepared
    # The next transaction waits for the markers of this one.
    following = Producer(ended.producer_id, ended.producer_epoch)
    assert world.add(following, P0) is ErrorCode.CONCURRENT_TRANSACTIONS
    markers = world.markers.write()
    assert (markers.partitions, markers.is_commit) == ((P0, P1), is_commit)
    assert markers.producer_epoch == producer.epoch + (1 if world.version == 2 else 0)
    complete = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    assert world.state() is complete
    assert world.add(following, P0) is ErrorCode.NONE


def test_the_next_producer_aborts_the_transaction_of_its_predecessor(world: World) -> None:
    old = world.producer()
    assert world.add(old, P0) is ErrorCode.NONE
    assert world.initialize() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.initialize() is ErrorCode.CONCURRENT_TRANSACTIONS
    markers = world.markers.write()
    assert not markers.is_commit
    assert markers.producer_epoch > old.epoch
    new = world.producer()
    assert new.producer_id == old.producer_id
    assert new.epoch > markers.producer_epoch
    assert world.add(old, P0) is ErrorCode.PRODUCER_FENCED
    assert world.end(old, True) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("is_commit", [True, False])
def test_no_request_changes_a_transaction_whose_markers_are_being_written(
    world: World, is_commit: bool
) -> None:
    producer = world.producer()
    world.add(producer, P0)
    ended = world.end(producer, is_commit)
    assert isinstance(ended, TransactionMetadata)
    current = Producer(ended.producer_id, ended.producer_epoch)
    concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
    others = (Producer(current.producer_id, current.epoch + 1), Producer(current.producer_id + 1))
    for each in (current, *others):
        assert world.add(each, P0) is concurrent
        assert world.initialize(expected=each) is concurrent
    for result in (True, False):
        assert world.end(current, result) is concurrent
        # Before version 2, the end of a transaction leaves the epoch, so another one is an error.
        fenced = concurrent if world.version == 2 else ErrorCode.PRODUCER_FENCED
        assert world.end(others[0], result) is fenced
    assert world.state().is_prepared


@pytest.mark.parametrize("version", [0, 2])
def test_a_retried_end_is_answered_only_by_a_coordinator_without_a_successor(version: int) -> None:
    world = World(replicas=(LEADER, 2))
    world.version = version
    found: list[TransactionMetadata | ErrorCode] = []
    world.coordinator.initialize(Initialization(ID, TIMEOUT_MS, Producer()), found.append)
    world.follow(1)
    (metadata,) = found
    assert isinstance(metadata, TransactionMetadata)
    producer = Producer(metadata.producer_id, metadata.producer_epoch)
    partition = TopicPartition("t", 0)
    world.coordinator.add_partitions(ID, producer, frozenset([partition]), version, lambda _: None)
    world.follow(2)
    ending = EndRequest(ID, producer, True, version)
    world.coordinator.end(ending, lambda _: None)
    world.follow(3)
    world.markers.write()
    world.follow(4)
    assert world.state() is TransactionState.COMPLETE_COMMIT

    retried: list[TransactionMetadata | ErrorCode] = []
    world.coordinator.end(ending, retried.append)
    assert retried == []
    world.follow(4)
    world.follow(4)
    (answer,) = retried
    assert isinstance(answer, TransactionMetadata)

    # The other broker no longer fetches from here: it may be the coordinator of a later
    # transaction, whose end this one must not confirm.
    world.coordinator.end(ending, retried.append)
    world.run_for(2_000)
    assert retried[1:] == [ErrorCode.NOT_COORDINATOR]


def test_describe_transactions_shows_partitions_without_a_marker(world: World) -> None:
    producer = world.producer()
    world.add(producer, P0, P1)
    world.end(producer, True)
    _, on_written, _ = world.markers.sent[0]
    assert world.partitions() == {P0, P1}
    on_written(P1)
    assert world.partitions() == {P0}
    # Another coordinator sends all markers again.
    world.coordinator.runtime.on_resigned(0)
    world.start(leader_epoch=1)
    assert world.partitions() == {P0, P1}
    world.markers.write()
    # The next transaction has no part of this one.
    world.add(world.producer(), P1)
    assert world.partitions() == {P1}


def test_a_timed_out_transaction_is_aborted_and_its_producer_fenced(
    world: World,
) -> None:
    producer = world.producer()
    assert world.add(producer, P0) is ErrorCode.NONE
    world.run_for(TIMEOUT_MS - 1_500)
    assert world.state() is TransactionState.ONGOING
    world.run_for(4_000)
    assert world.state() is TransactionState.PREPARE_ABORT
    assert world.markers.write().producer_epoch > producer.epoch
    assert world.state() is TransactionState.COMPLETE_ABORT
    assert world.end(producer, True) is fenced_in(world)


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_a_transaction_times_out_although_the_wall_clock_was_set_back(
    world: World, is_reloaded: bool
) -> None:
    clock = world.replicas.world.host("host").clock
    clock.wall_offset_ms = 6 * 3_600_000
    producer = world.producer()
    assert world.add(producer, P0) is ErrorCode.NONE
    clock.wall_offset_ms = 0
    if is_reloaded:
        world.start(leader_epoch=1)
    world.run_for(TIMEOUT_MS - 1_500)
    assert world.state() is TransactionState.ONGOING
    world.run_for(4_000)
    assert world.state() is TransactionState.PREPARE_ABORT


def test_the_age_of_a_transaction_does_not_count_for_the_next_one(world: World) -> None:
    producer = world.producer()
    for _ in range(3):
        assert world.add(producer, P0) is ErrorCode.NONE
        world.run_for(TIMEOUT_MS - 1_500)
        assert world.state() is TransactionState.ONGOING
        ended = world.end(producer, True)
        assert isinstance(ended, TransactionMetadata)
        world.markers.write()
        producer = ended.client_producer


def test_transactions_that_time_out_together_end_although_their_markers_are_written_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.markers, "send", lambda _, __, on_done: on_done(ErrorCode.NONE))
    found: list[Any] = []
    names = [f"late-{number}" for number in range(3)]
    for name in names:
        request = Initialization(name, TIMEOUT_MS, Producer())
        world.coordinator.initialize(request, found.append)
        producer = Producer(found[-1].producer_id, found[-1].producer_epoch)
        partitions = frozenset({P0})
        world.coordinator.add_partitions(name, producer, partitions, world.version, found.append)
        assert found[-1] is ErrorCode.NONE
    world.run_for(TIMEOUT_MS + 20_000)
    states = [world.coordinator.describe(name) for name in names]
    assert [getattr(each, "state", each) for each in states] == [
        TransactionState.COMPLETE_ABORT
    ] * len(names)


def test_an_unused_transactional_id_expires(world: World) -> None:
    world.producer()
    world.run_for(90_000)
    assert world.state() is TransactionState.EMPTY
    world.run_for(20_000)
    assert world.coordinator.describe(ID) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_new_coordinator_sends_the_markers_of_a_decided_transaction(
    world: World, is_commit: bool
) -> None:
    producer = world.producer()
    world.add(producer, P0)
    world.end(producer, is_commit)
    held = world.markers
    world.coordinator.runtime.on_resigned(0)
    assert held.forgotten == [0]
    world.start(leader_epoch=1)
    (markers, *_) = world.markers.sent[0]
    assert (markers.is_commit, markers.coordinator_epoch) == (is_commit, 1)
    # An answer for the old coordinator changes nothing.
    held.write()
    assert world.state().is_prepared
    world.markers.write()
    complete = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    assert world.state() is complete


def test_a_new_coordinator_loads_open_transactions_and_their_timeouts(world: World) -> None:
    producer = world.producer()
    world.add(producer, P0)
    world.coordinator.runtime.on_resigned(0)
    world.start(leader_epoch=1)
    assert world.state() is TransactionState.ONGOING
    assert world.markers.sent == []
    world.run_for(TIMEOUT_MS + 2_000)
    assert world.state() is TransactionState.PREPARE_ABORT


def test_timeouts_outside_the_limits_and_empty_ids_are_refused() -> None:
    world = World()
    for timeout_ms in (0, -1, CONFIG.transaction_max_timeout_ms + 1):
        assert world.initialize(timeout_ms) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert world.coordinator.describe("") is ErrorCode.INVALID_REQUEST
    found = world.coordinator.verify_partitions("", Producer(1, 1), frozenset([P0]))
    assert found == {P0: ErrorCode.INVALID_REQUEST}


def test_a_broker_that_does_not_lead_the_partition_returns_not_coordinator() -> None:
    world = World()
    world.coordinator.runtime.on_resigned(0)
    assert world.initialize() is ErrorCode.NOT_COORDINATOR
    assert world.add(Producer(1, 0), P0) is ErrorCode.NOT_COORDINATOR
    assert world.coordinator.describe(ID) is ErrorCode.NOT_COORDINATOR


def test_two_phase_commit_is_refused_unless_enabled() -> None:
    world = World()
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert world.initialize(two_phases=True) is refused
    assert world.initialize(two_phases=True, keeps=True) is refused
    assert world.initialize(keeps=True) is ErrorCode.UNSUPPORTED_VERSION
    allowed = World(WITH_TWO_PHASES)
    assert isinstance(allowed.initialize(keeps=True), TransactionMetadata)
    # The state of a kept transaction needs records of version 1.
    allowed.version = 1
    assert allowed.initialize(keeps=True) is ErrorCode.UNSUPPORTED_VERSION
    assert allowed.initialize(0) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    found = allowed.initialize(0, two_phases=True)
    assert isinstance(found, TransactionMetadata)
    assert found.timeout_ms == NO_TIMEOUT_MS


def test_a_two_phase_transaction_never_times_out() -> None:
    world = World(WITH_TWO_PHASES)
    found = world.initialize(two_phases=True)
    assert isinstance(found, TransactionMetadata)
    producer = Producer(found.producer_id, found.producer_epoch)
    assert world.add(producer, P0) is ErrorCode.NONE
    # Neither its timeout nor the expiration of unused ids ends it.
    world.run_for(2 * CONFIG.transactional_id_expiration_ms)
    assert world.state() is TransactionState.ONGOING
    assert isinstance(world.end(producer, True), TransactionMetadata)


def test_a_new_coordinator_loads_the_producer_of_a_kept_transaction() -> None:
    world = World(WITH_TWO_PHASES)
    first = world.producer()
    assert world.add(first, P0) is ErrorCode.NONE
    kept = world.initialize(two_phases=True, keeps=True)
    assert isinstance(kept, TransactionMetadata)
    assert (kept.producer_id, kept.producer_epoch) == (first.producer_id, first.epoch)
    world.start(1)
    assert world.end(first, True) is ErrorCode.PRODUCER_FENCED
    assert isinstance(world.end(kept.client_producer, True), TransactionMetadata)
    markers = world.markers.write()
    assert (markers.producer_id, markers.producer_epoch) == (first.producer_id, first.epoch + 1)
    assert world.state() is TransactionState.COMPLETE_COMMIT
    following = Producer(first.producer_id, kept.client_producer.epoch + 1)
    assert world.add(following, P1) is ErrorCode.NONE


def test_a_producer_without_keep_prepared_aborts_the_transaction() -> None:
    world = World(WITH_TWO_PHASES)
    found = world.initialize(two_phases=True, keeps=True)
    assert isinstance(found, TransactionMetadata)
    assert not found.is_kept
    assert found.state is TransactionState.EMPTY


def test_a_new_producer_id_is_reserved_for_a_kept_transaction_with_an_exhausted_epoch() -> None:
    world = World(WITH_TWO_PHASES)
    producer = world.producer()
    while producer.epoch < EPOCH_MAX - 1:
        producer = world.producer()
    assert world.add(producer, P0) is ErrorCode.NONE
    kept = world.initialize(keeps=True)
    assert isinstance(kept, TransactionMetadata)
    assert kept.client_producer == Producer(world.next_id, 0)
    assert world.next_id > producer.producer_id


def test_transactional_ids_are_counted_by_state(world: World) -> None:
    (shard,) = world.coordinator.runtime.active_shards()

    def counts() -> dict[TransactionState, int]:
        return {state: count for state, count in shard.state_counts.items() if count}

    assert counts() == {}
    producer = world.producer()
    assert counts() == {TransactionState.EMPTY: 1}
    world.add(producer, P0)
    assert counts() == {TransactionState.ONGOING: 1}
    world.end(producer, True)
    world.markers.write()
    assert counts() == {TransactionState.COMPLETE_COMMIT: 1}
    world.run_for(2 * CONFIG.transactional_id_expiration_ms)
    assert counts() == {}


def test_the_time_of_loading_is_measured(world: World) -> None:
    runtime = world.coordinator.runtime
    longest = runtime.load_times.maximum(runtime.now_ms())
    assert longest is not None
    assert 0 <= longest <= 50
    world.run_for(120_000)
    assert runtime.load_times.maximum(runtime.now_ms()) is None
