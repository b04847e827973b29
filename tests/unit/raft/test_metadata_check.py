"""A node with the only copy of damaged metadata refuses to start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.raft.log.metadata_check import MetadataDamagedError, find_intact_end
from barnabas.server.configs.configuration import read_configuration
from barnabas.server.process.node import Node
from unit.server.simulated_broker import SimulatedBroker

if TYPE_CHECKING:
    from barnabas.sim.disk import SimDisk

DIRECTORY = "/data/__cluster_metadata-0"
LOG = f"{DIRECTORY}/00000000000000000000.log"


def stopped(*, cleanly: bool) -> SimulatedBroker:
    """Return a stopped broker with some topics."""
    broker = SimulatedBroker()
    for number in range(4):
        broker.make_topic(f"t{number}")
    # The committed offset is written once a second.
    broker.world.run_for(2_000)
    if cleanly:
        broker.stop()
    else:
        broker.host.kill()
    broker.host.start()
    return broker


def flip(disk: SimDisk, path: str, bit: int) -> None:
    content = bytearray(disk.read(path))
    content[bit // 8] ^= 1 << bit % 8
    disk.write_atomically(path, bytes(content))


def launch(broker: SimulatedBroker) -> None:
    broker.ready.clear()
    settings = read_configuration(broker.settings)
    node = Node(settings, broker.host.runtime, broker.ready.append, broker.failures.append)
    node.start()
    assert broker.world.run_until(lambda: bool(broker.ready))


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_flipped_bit_in_committed_metadata_stops_the_start_without_changes(
    cleanly: bool,
) -> None:
    broker = stopped(cleanly=cleanly)
    disk = broker.host.disk
    size = disk.size(LOG)
    whole = disk.read(LOG)
    for bit in range(0, size * 8, size * 8 // 40):
        flip(disk, LOG, bit)
        damaged = disk.read(LOG)
        with pytest.raises(MetadataDamagedError, match="barnabas log repair"):
            launch(broker)
        assert disk.read(LOG) == damaged
        broker.host.kill()
        broker.host.start()
        disk.write_atomically(LOG, whole)
    launch(broker)


@pytest.mark.parametrize("name", [LOG, f"{DIRECTORY}/quorum-state"])
@pytest.mark.parametrize("kept", [0, 40])
def test_a_truncated_or_empty_metadata_log_stops_the_start(name: str, kept: int) -> None:
    broker = stopped(cleanly=True)
    content = broker.host.disk.read(name)
    broker.host.disk.write_atomically(name, content[:kept])
    with pytest.raises(MetadataDamagedError):
        launch(broker)


def test_a_missing_metadata_log_stops_the_start() -> None:
    broker = stopped(cleanly=False)
    broker.host.disk.remove(LOG)
    with pytest.raises(MetadataDamagedError, match="was committed"):
        launch(broker)


def test_a_lost_election_state_does_not_reuse_an_earlier_epoch() -> None:
    broker = stopped(cleanly=True)
    launch(broker)
    broker.host.kill()
    broker.host.start()
    broker.host.disk.remove(f"{DIRECTORY}/quorum-state")
    launch(broker)
    broker.host.kill()
    broker.host.start()
    assert find_intact_end(broker.host.disk, DIRECTORY).problem == ""
    launch(broker)


def test_a_torn_uncommitted_tail_is_truncated() -> None:
    broker = stopped(cleanly=False)
    disk = broker.host.disk
    size = disk.size(LOG)
    disk.open(LOG).append(disk.read(LOG)[:50])
    launch(broker)
    assert disk.size(LOG) >= size
    assert find_intact_end(disk, DIRECTORY).problem == ""
