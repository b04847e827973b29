"""Loss of power while a mirror follows a truncation of its source: no mirror mixes two histories.

The leader of the mirror is on a simulated disk. At a random moment around the truncation, the disk
loses a random part of what was not synced. The log is opened again, with the recovery point that
the broker had written, and the mirror goes on in a new leader epoch.
"""

from __future__ import annotations

import random

import pytest

from barnabas.record.batch import read_header
from barnabas.sim.disk import SimDisk
from barnabas.storage.log.log import Log
from barnabas.storage.log_dependencies import LogOpening
from unit.replication.links.mirroring_broker import MirroringBroker
from unit.replication.links.test_mirror_truncation import Source, assert_equal, named
from unit.replication.replica_set import PARTITION

# Room for some batches, so that a truncation removes segments, or is followed by a new one.
_SEGMENT_BYTES = 600


class Machine:
    """A broker with a mirror, whose machine may lose power."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.broker = MirroringBroker(segment_bytes=rng.choice((_SEGMENT_BYTES, 1 << 20)))
        self.broker.local.follows_truncation = True

    def maybe_sync(self) -> None:
        if self.rng.random() < 0.5:
            self.broker.log.sync.flush()

    def lose_power(self) -> None:
        """Lose what is not synced, and open the log as after the start of a broker."""
        logs, log = self.broker.set.logs, self.broker.log
        opening = LogOpening(
            PARTITION, log.identity.topic_id, recovery_point=log.sync.safe_recovery_point
        )
        disk = self.broker.set.runtime.disk
        assert isinstance(disk, SimDisk)
        disk.crash()
        log = Log.open(log.directory, log.config, logs.log_dependencies, opening)
        logs.logs[PARTITION] = log
        self.broker.start_again()
        self.broker.local.follows_truncation = True


@pytest.mark.parametrize("seed", range(80))
def test_a_mirror_after_a_loss_of_power_is_equal_to_its_source(seed: int) -> None:
    rng = random.Random(seed)
    machine = Machine(rng)
    source = Source(*named("old", rng.randint(2, 40)))
    source.serve(machine.broker, 20)
    machine.maybe_sync()
    for epoch in (4, 5):
        source.truncate(rng.randint(0, source.end))
        source.extend(*named(f"epoch-{epoch}", rng.randint(1, 40)), epoch=epoch)
        if rng.random() < 0.5:
            machine.broker.lead_anew()
        source.serve(machine.broker, rng.randint(0, 40))
        machine.maybe_sync()
        if rng.random() < 0.5:
            source.serve(machine.broker, rng.randint(0, 10))
        machine.lose_power()
        source.serve(machine.broker)

    assert_equal(machine.broker, source)
    assert machine.broker.log.log_end_offset == read_header(source.batches[-1]).next_offset
