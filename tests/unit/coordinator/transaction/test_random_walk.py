"""Random requests of two producers with one transactional id, with coordinator changes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from barnabas.coordinator.transaction.decisions import Producer
from barnabas.coordinator.transaction.transaction_metadata import (
    TRANSACTION_STATES,
    TransactionMetadata,
    TransactionState,
)
from barnabas.protocol.errors import ErrorCode
from unit.coordinator.transaction.transaction_world import ID, P0, P1, TIMEOUT_MS, World

STEPS = 300
ALLOWED = {
    (before, after) for before, events in TRANSACTION_STATES.items() for after in events.values()
} | {(state, state) for state in TransactionState}


@dataclass
class Walk:
    """The state of the producers, and the observed state of the coordinator."""

    world: World
    rng: random.Random
    # Id and epoch that each of the two instances believes to have.
    instances: list[Producer] = field(default_factory=lambda: [Producer(), Producer()])
    coordinator_epoch: int = 0
    last: TransactionMetadata | None = None
    # By producer id and epoch of the markers: whether the transaction is committed. Before version
    # 2, transactions of one producer share an epoch, so only the last one is kept.
    results: dict[tuple[int, int], bool] = field(default_factory=dict)
    commits: int = 0

    def step(self) -> None:
        index = self.rng.randrange(2)
        self.rng.choice(
            [self.initialize, self.add, self.add, self.end, self.end, self.write, self.move]
        )(index)
        if self.rng.random() < 0.1:
            self.world.run_for(self.rng.choice([10, TIMEOUT_MS]))
        self.check()

    def initialize(self, index: int) -> None:
        found = self.world.initialize()
        if isinstance(found, TransactionMetadata):
            self.instances[index] = Producer(found.producer_id, found.producer_epoch)

    def add(self, index: int) -> None:
        self.world.add(self.instances[index], self.rng.choice([P0, P1]))

    def end(self, index: int) -> None:
        is_commit = self.rng.random() < 0.5
        found = self.world.end(self.instances[index], is_commit)
        if isinstance(found, TransactionMetadata):
            self.instances[index] = Producer(found.producer_id, found.producer_epoch)
            is_committed = found.state in (
                TransactionState.PREPARE_COMMIT,
                TransactionState.COMPLETE_COMMIT,
            )
            assert is_committed == is_commit, (found.state, is_commit)
            self.commits += is_commit

    def write(self, _: int) -> None:
        if self.world.markers.sent:
            self.world.markers.write()

    def move(self, _: int) -> None:
        if self.rng.random() < 0.2:
            self.coordinator_epoch += 1
            self.world.coordinator.runtime.on_resigned(0)
            self.world.start(self.coordinator_epoch)

    def check(self) -> None:
        for markers, *_ in self.world.markers.sent:
            key = markers.producer_id, markers.producer_epoch
            if self.world.version < 2:
                self.results.pop(key, None)
            result = self.results.setdefault(key, markers.is_commit)
            assert result == markers.is_commit, f"OneTransactionPerId: {key} committed and aborted"
        found = self.world.coordinator.describe(ID)
        if not isinstance(found, TransactionMetadata):
            assert found is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            return
        before = self.last
        if before is not None:
            assert (before.state, found.state) in ALLOWED or self.is_two_steps(before, found), (
                f"OneTransactionPerId: {before.state.label} to {found.state.label}"
            )
            if before.producer_id == found.producer_id:
                assert found.producer_epoch >= before.producer_epoch
        self.last = found

    def is_two_steps(self, before: TransactionMetadata, after: TransactionMetadata) -> bool:
        """Return whether a request or a timeout made two changes in one step of the walk."""
        return any(
            (before.state, state) in ALLOWED and (state, after.state) in ALLOWED
            for state in TransactionState
        )


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("seed", range(20))
def test_random_requests_keep_one_result_for_each_transaction(seed: int, version: int) -> None:
    world = World()
    world.version = version
    walk = Walk(world, random.Random(seed))
    for _ in range(STEPS):
        walk.step()
    assert walk.results
    assert walk.commits
