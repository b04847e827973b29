"""Timers of a coordinator with many transactional ids: each turn of the loop examines some."""

from __future__ import annotations

from typing import Any

from barnabas.coordinator.transaction.decisions import Initialization
from barnabas.coordinator.transaction.transaction_metadata import Producer, TransactionState
from barnabas.coordinator.transaction.transaction_shard import _EXAMINED_AT_ONCE_MAX
from barnabas.protocol.errors import ErrorCode
from unit.coordinator.transaction.transaction_world import CONFIG, P0, World

COUNT = 2 * _EXAMINED_AT_ONCE_MAX + 500
INTERVAL_MS = CONFIG.transaction_abort_timed_out_transaction_cleanup_interval_ms


class CountedReads(dict[str, Any]):
    """Counts the look-ups of ids."""

    count = 0

    def get(self, key: str, default: Any = None) -> Any:
        self.count += 1
        return super().get(key, default)


def initialized(world: World, name: str) -> Producer:
    found: list[Any] = []
    world.coordinator.initialize(Initialization(name, 60_000, Producer()), found.append)
    return Producer(found[0].producer_id, found[0].producer_epoch)


def test_a_turn_examines_a_limited_number_of_ids() -> None:
    world = World()
    for number in range(COUNT):
        initialized(world, f"id-{number}")
    (shard,) = world.coordinator.runtime.shards()
    reads = shard.transactions = CountedReads(shard.transactions)
    by_ms = []
    for _ in range(INTERVAL_MS + 10):
        before = reads.count
        world.run_for(1)
        by_ms.append(reads.count - before)
    assert sum(by_ms) == COUNT
    assert max(by_ms) == _EXAMINED_AT_ONCE_MAX


def test_all_of_many_ids_time_out_and_expire() -> None:
    world = World()
    done: list[ErrorCode] = []
    for number in range(COUNT):
        producer = initialized(world, f"id-{number}")
        # Only the last ids have transactions, and more of them than one turn aborts.
        if number >= COUNT - 250:
            world.coordinator.add_partitions(
                f"id-{number}", producer, frozenset({P0}), world.version, done.append
            )
    assert done == [ErrorCode.NONE] * 250
    (shard,) = world.coordinator.runtime.shards()
    world.run_for(60_000 + 3 * INTERVAL_MS)
    assert shard.state_counts[TransactionState.PREPARE_ABORT] == 250
    while world.markers.sent:
        world.markers.write()
    world.run_for(50)
    world.run_for(CONFIG.transactional_id_expiration_ms + 10_000)
    assert shard.transactions == {}
