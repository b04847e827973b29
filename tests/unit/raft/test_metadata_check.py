"""Damaged metadata: a node that is its only owner does not start over what is left of it."""

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
    """A broker with some topics, that has ended."""
    broker = SimulatedBroker()
    for number in range(4):
        broker.make_topic(f"t{number}")
    # The note of what is committed is written once a second.
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
def test_a_flipped_bit_in_committed_metadata_is_refused_and_nothing_is_changed(
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
def test_metadata_that_was_truncated_or_emptied_is_refused(name: str, kept: int) -> None:
    broker = stopped(cleanly=True)
    content = broker.host.disk.read(name)
    broker.host.disk.write_atomically(name, content[:kept])
    with pytest.raises(MetadataDamagedError):
        launch(broker)


def test_a_metadata_log_that_is_gone_is_refused() -> None:
    broker = stopped(cleanly=False)
    broker.host.disk.remove(LOG)
    with pytest.raises(MetadataDamagedError, match="was committed"):
        launch(broker)


def test_a_lost_vote_does_not_let_an_earlier_epoch_write_behind_a_later_one() -> None:
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


def test_a_torn_end_that_was_never_committed_is_cut() -> None:
    broker = stopped(cleanly=False)
    disk = broker.host.disk
    size = disk.size(LOG)
    disk.open(LOG).append(disk.read(LOG)[:50])
    launch(broker)
    assert disk.size(LOG) >= size
    assert find_intact_end(disk, DIRECTORY).problem == ""
