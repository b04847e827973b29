"""Verification of transactions while markers of earlier transactions arrive."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.coordinator.transaction.transaction_metadata import Producer
from barnabas.protocol.errors import ErrorCode
from barnabas.server.peers.peer_queues import PeerDependencies
from barnabas.server.peers.transaction_verification import Batch, Operation, TransactionVerification
from barnabas.sim.world import SimWorld
from barnabas.storage.producers.producer_entry import ProducerEntry
from barnabas.storage.producers.producer_state import ProducerState
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = TopicPartition("t", 0)
PRODUCER = Producer(7, 1)
LATER_MS = 1_000
MARKERS = 10


class Setup:
    """A verification whose coordinator answers when the test says so."""

    def __init__(self) -> None:
        self.world = SimWorld(1)
        runtime = self.world.host("broker").runtime
        self.state = ProducerState(runtime.disk, "/t-0", 86_400_000)
        self.state.requires_verification = True
        # Questions that the coordinator has not answered.
        self.asked: list[Callable[[ErrorCode], None]] = []
        self.verified: list[dict[TopicPartition, ErrorCode]] = []
        partition = SimpleNamespace(log=SimpleNamespace(producer_state=self.state))
        coordinator: Any = SimpleNamespace(
            runtime=SimpleNamespace(partition_for=lambda _: 0),
            add_partitions=lambda *args: self.asked.append(args[-1]),
        )
        cluster: Any = SimpleNamespace(partition=lambda *_: SimpleNamespace(leader=1))
        replicas: Any = SimpleNamespace(partition=lambda _: partition)
        peers = PeerDependencies(1, cluster, runtime.clock, runtime.timer, None)
        self.verification = TransactionVerification(replicas, coordinator, peers)

    def begin(self) -> None:
        """Ask for the first batch of the producer's next transaction."""
        batch = Batch(PRODUCER, 0)
        self.verification.verify("id", {KEY: batch}, Operation.ADD, self.verified.append)

    def answer(self, error: ErrorCode) -> None:
        """Let the coordinator answer."""
        self.asked.pop(0)(error)

    def write_marker(self) -> None:
        """Append the marker of the transaction before: version 2 gives it the next epoch."""
        entry = self.state.entries.get(PRODUCER.producer_id) or ProducerEntry(PRODUCER.producer_id)
        self.state.commit(entry.with_marker(PRODUCER.epoch, 0, 0))

    def is_confirmed(self) -> bool:
        """Whether the log takes the first batch of the transaction."""
        guards = self.state.verifications
        guard = None if guards is None else guards.find(PRODUCER.producer_id, PRODUCER.epoch)
        return guard is not None and guard.is_verified and guard.epoch == PRODUCER.epoch


@pytest.fixture
def setup() -> Setup:
    return Setup()


def test_a_confirmed_transaction_may_begin(setup: Setup) -> None:
    setup.begin()
    setup.answer(ErrorCode.NONE)
    assert setup.verified == [{}]
    assert setup.is_confirmed()


def test_a_marker_of_the_previous_transaction_does_not_affect_a_retried_request(
    setup: Setup,
) -> None:
    setup.begin()
    setup.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    setup.write_marker()
    assert setup.world.run_until(lambda: bool(setup.asked))
    setup.answer(ErrorCode.NONE)
    # The marker has ended this verification, so that the coordinator is asked anew.
    assert setup.verified == []
    setup.answer(ErrorCode.NONE)
    assert setup.verified == [{}]
    assert setup.is_confirmed()


def test_the_new_response_applies_if_a_marker_arrives_during_the_request(setup: Setup) -> None:
    setup.begin()
    setup.write_marker()
    setup.answer(ErrorCode.NONE)
    setup.answer(ErrorCode.PRODUCER_FENCED)
    assert setup.verified == [{KEY: ErrorCode.INVALID_PRODUCER_EPOCH}]
    assert not setup.is_confirmed()


def test_no_request_is_repeated_for_a_fenced_producer(setup: Setup) -> None:
    setup.begin()
    entry = ProducerEntry(PRODUCER.producer_id)
    setup.state.commit(entry.with_marker(PRODUCER.epoch + 1, 0, 0))
    setup.answer(ErrorCode.NONE)
    assert setup.asked == []
    assert setup.verified == [{KEY: ErrorCode.INVALID_PRODUCER_EPOCH}]


def test_requests_end_even_if_a_marker_arrives_during_each_of_them(setup: Setup) -> None:
    setup.begin()
    for _ in range(MARKERS):
        if setup.asked:
            setup.write_marker()
            setup.answer(ErrorCode.NONE)
    assert setup.asked == []
    # A client retries after this error.
    assert setup.verified == [{KEY: ErrorCode.CONCURRENT_TRANSACTIONS}]
    assert not setup.is_confirmed()
