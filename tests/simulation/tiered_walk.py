"""A tiered topic under faults from a seed: nodes die or lose their disks, and the store fails.

python -m simulation.tiered_walk --seeds 200 [--first 1]     (from `tests`)
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

from simulation.cluster_faults import ClusterFaults
from simulation.cluster_world import NODES
from simulation.tiered_world import PARTITIONS, TOPIC, TieredWorld, shared_store
from unit.server.process.wiped_disk import wipe

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 6
# Virtual ms between two faults, and the time for which a fault is held.
WRITE_MS = (300.0, 2_500.0)
HOLD_MS = (100.0, 4_000.0)
# Virtual ms, longer than the session of a broker, so that another one leads in the meantime.
PAUSE_MS = 15_000.0


class TieredWalk:
    """The run of one seed."""

    def __init__(self, seed: int, world: TieredWorld) -> None:
        self.rng = random.Random(seed)
        self.world = world
        self.counts: Counter[str] = Counter()
        self._faults = ClusterFaults(world, self.rng, HOLD_MS)
        # By frequency.
        self._choices: tuple[Callable[[], None], ...] = (
            self.kill,
            self.kill,
            self.kill_leader,
            self.kill_leader,
            self.lose_power,
            self.wipe,
            self.pause_leader,
            self.stop_store,
            self.spoil_store,
            self.spoil_store,
            self.hide_object,
            self.remove_tier,
            self.remove_tier,
            self.stop_copies,
            self.delete_records,
        )

    def play(self) -> Counter[str]:
        """Play the faults, and check the invariants between and after them."""
        world = self.world
        world.live(2_000)
        for _ in range(ROUNDS):
            world.live(self.rng.uniform(*WRITE_MS))
            fault = self.rng.choice(self._choices)
            self.counts[fault.__name__] += 1
            fault()
            self.counts["records read under faults"] += world.check_reads()
        self._end_store_faults()
        self._faults.end()
        world.live(500)
        # The pending requests end.
        world.live(1_000, writes=False)
        world.settle()
        self.counts["records read from the tier"] += world.check_all()
        world.check_tier_goes()
        self.counts["records"] += sum(map(len, world.acknowledged.values()))
        self.counts["copies"] += world.store.calls["copy_segment"]
        return self.counts

    # Faults.

    def kill(self) -> None:
        """Kill a node, and start it again."""
        self._restart(self.rng.choice(NODES))

    def kill_leader(self) -> None:
        """Kill the leader of a partition, perhaps in the middle of a copy."""
        self._restart(self._leader())

    def lose_power(self) -> None:
        """Kill a node, whose disk loses what is not synced."""
        # All other replicas have all records.
        self._faults.heal()
        node = self.rng.choice(NODES)
        self.world.cluster.kill(node)
        self.world.cluster.world.host(f"node-{node}").lose_power()
        self._start_later(node)

    def wipe(self) -> None:
        """Replace the disk of a node."""
        # All other replicas have all records.
        self._faults.heal()
        node = self.rng.choice(NODES)
        self.world.cluster.kill(node)
        wipe(self.world.cluster, node)
        self._start_later(node)

    def pause_leader(self) -> None:
        """Pause the leader of a partition until another node leads it."""
        self._faults.pause(self._leader(), PAUSE_MS)
        self.world.live(PAUSE_MS + 1_000)

    def stop_store(self) -> None:
        """No call of the store succeeds for a while."""
        faults = self.world.store.faults
        faults.unavailable = 1.0
        self.world.live(self.rng.uniform(*HOLD_MS))
        faults.unavailable = 0.0

    def spoil_store(self) -> None:
        """Some calls of the store fail, or do not do what they report, until the next time."""
        faults = self.world.store.faults
        faults.unavailable = self.rng.choice([0.0, 0.1, 0.5])
        faults.torn_copy = self.rng.choice([0.0, 0.0, 0.3])
        faults.lie = self.rng.choice([0.0, 0.0, 0.3])
        faults.damaged_read = self.rng.choice([0.0, 0.0, 0.2])
        faults.is_full = self.rng.random() < 0.1
        faults.is_refusing = self.rng.random() < 0.1

    def hide_object(self) -> None:
        """An object is missing for a while; reads of other offsets go on."""
        store = self.world.store
        names = store.names()
        if names:
            store.hide(self.rng.choice(names))
        self.world.live(self.rng.uniform(*HOLD_MS))
        self.counts["records read under faults"] += self.world.check_reads()
        store.restore()

    def remove_tier(self) -> None:
        """Switch the tier off, and on again, perhaps before all is deleted."""
        self.world.switch_tier(is_on=False)
        if self.rng.random() < 0.5:
            self.world.live(self.rng.uniform(0.0, 1_000.0))
            self.kill_leader()
        else:
            self.world.live(self.rng.choice([0.0, 30.0, 300.0, 3_000.0]))
        self.world.switch_tier(is_on=True)

    def stop_copies(self) -> None:
        """Let the tier be read only for a while."""
        self.world.switch_copies(is_on=False)
        self.world.live(self.rng.uniform(*HOLD_MS))
        self.counts["records read under faults"] += self.world.check_reads()
        self.world.switch_copies(is_on=True)

    def delete_records(self) -> None:
        """Delete records of a partition, in the tier or also in the local log."""
        index = self.rng.randrange(PARTITIONS)
        known = sorted(self.world.acknowledged[index])
        if known:
            self.world.delete_records(index, known[self.rng.randrange(1 + len(known) // 2)])

    def _end_store_faults(self) -> None:
        faults = self.world.store.faults
        faults.unavailable = faults.torn_copy = faults.lie = faults.damaged_read = 0.0
        faults.is_full = faults.is_refusing = False

    def _leader(self) -> int:
        return self.world.leading(self.rng.randrange(PARTITIONS))

    def _restart(self, node: int) -> None:
        self.world.cluster.kill(node)
        self._start_later(node)

    def _start_later(self, node: int) -> None:
        self.world.live(self.rng.uniform(*HOLD_MS))
        cluster = self.world.cluster
        cluster.launch(node)
        cluster.until(lambda: node in cluster.ready)
        if self.rng.random() < 0.5:
            self._faults.heal()


def run(seed: int, **more_settings: str) -> Counter[str]:
    """Run one seed. Raises InvariantError, or any error of a broker."""
    rng = random.Random(seed)
    settings = {
        "follower_fetch_last_tiered_offset_enable": rng.choice(["true", "false"]),
        **more_settings,
    }
    configs = {"retention.bytes": str(rng.choice([-1, -1, 30_000]))}
    with shared_store() as stores:
        return TieredWalk(seed, TieredWorld(seed, stores, settings, configs)).play()


def main() -> int:
    """Run many seeds and print their results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=1)
    options = parser.parse_args()
    # Each fault is logged; that is expected here.
    logging.disable(logging.CRITICAL)
    started, counts, failed = time.monotonic(), Counter[str](), []
    for seed in range(options.first, options.first + options.seeds):
        try:
            counts += run(seed)
        except Exception as error:  # noqa: BLE001 - any error is reported
            failed.append(seed)
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
    seconds = time.monotonic() - started
    print(f"topic {TOPIC}, seeds {options.first} to {options.first + options.seeds - 1}, "
          f"{seconds:.0f} s")  # fmt: skip
    for name, count in sorted(counts.items()):
        print(f"{name:28}{count:>12,}")
    print(f"failed: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
