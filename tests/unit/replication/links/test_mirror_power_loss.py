"""Loss of power while a mirror follows a truncation of its source: no mirror mixes two histories.

The leader of the mirror is on a simulated disk. At a random moment around the truncation, the disk
loses a random part of what was not synced. The log is opened again, with the recovery point that
the broker had written, and the mirror goes on in a new leader epoch.
"""

from __future__ import annotations

import random

import pytest

from barnabas.sim.disk import SimDisk
from barnabas.storage.log.log import Log
from barnabas.storage.log_dependencies import LogOpening
from unit.replication.links.mirroring_broker import MirroringBroker
from unit.replication.links.test_mirror_truncation import Source, assert_equal
from unit.replication.replica_set import PARTITION

# Room for some batches, so that a truncation removes segments, or is followed by a new one.
_SEGMENT_BYTES = 600


def values(prefix: str, count: int) -> list[bytes]:
    """Return values of one size, so that segments of both histories begin at the same offsets."""
    return [f"{prefix}-{number:03}".encode() for number in range(count)]


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


# A seed of a fixed bug: the file of leader epochs was damaged, the next loss of power left what
# recovery had written to it first, and the records below its first epoch were deleted (1442).
FIXED_SEEDS = (1442,)


@pytest.mark.parametrize("seed", [*range(80), *FIXED_SEEDS])
def test_a_mirror_after_a_loss_of_power_is_equal_to_its_source(seed: int) -> None:
    rng = random.Random(seed)
    machine = Machine(rng)
    source = Source(*values("x0", rng.randint(2, 40)))
    source.serve(machine.broker, 15)
    machine.maybe_sync()
    for epoch in (4, 5):
        source.truncate(rng.randint(0, source.end))
        source.extend(*values(f"x{epoch}", rng.randint(1, 40)), epoch=epoch)
        if rng.random() < 0.5:
            machine.broker.lead_anew()
        source.serve(machine.broker, rng.randint(0, 30))
        if rng.random() < 0.3:
            machine.maybe_sync()
        machine.lose_power()
        source.serve(machine.broker, 50)

    assert_equal(machine.broker, source)
