"""Whole machines die under load: a supervisor, two brokers and a controller, at the same time.

The topic has three replicas and min.insync.replicas=2. Its replicas are on three machines, so every
partition stays writable while one machine is down, and no acknowledged record is lost.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.campaign import Options
from chaos.outcome import Outcome
from chaos.short_campaign import SETTINGS, check_campaign
from machines import MACHINES, needs_loopback_addresses
from scenario.stage import runs_on_kafka

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    needs_loopback_addresses,
]
MACHINE_DIES = "kill -9 of a machine"
SUPERVISOR_DIES = "kill -9 of a supervisor"
PROCESSES_DIE = ("kill -9 of a leader", "kill -9 of the active controller")


@pytest.mark.parametrize(
    ("seconds", "seed"), [(20.0, 25), pytest.param(300.0, 21, marks=pytest.mark.nightly)]
)
def test_partitions_stay_writable_and_lose_nothing_while_a_node_is_down(
    tmp_path: Path, seconds: float, seed: int
) -> None:
    outcome = check_nodes(tmp_path, seconds, seed, MACHINE_DIES, SUPERVISOR_DIES)
    assert {event.name for event in outcome.events} <= {MACHINE_DIES, SUPERVISOR_DIES}
    for number in range(1, MACHINES + 1):
        # A process that ends while its supervisor runs has failed.
        assert "ended with" not in (tmp_path / f"node-{number}" / "node.log").read_text()


@pytest.mark.nightly
def test_nodes_and_their_processes_die_in_turn_without_loss(tmp_path: Path) -> None:
    check_nodes(tmp_path, 180.0, 23, MACHINE_DIES, SUPERVISOR_DIES, *PROCESSES_DIE)


@pytest.mark.nightly
def test_machines_without_supervisors_die_without_loss_as_with_kafka(tmp_path: Path) -> None:
    options = Options(
        120.0,
        21,
        runs_on_kafka(),
        brokers=6,
        controllers=3,
        rate=100,
        faults=(MACHINE_DIES, *PROCESSES_DIE),
        relays=False,
        settings=SETTINGS,
        machines=True,
    )
    check_campaign(options, tmp_path)


def check_nodes(directory: Path, seconds: float, seed: int, *faults: str) -> Outcome:
    """Run a campaign with a supervised node on each machine, and check its outcome."""
    options = Options(
        seconds,
        seed,
        rate=100,
        faults=faults,
        relays=False,
        settings=SETTINGS,
        machines=True,
        supervised=True,
    )
    return check_campaign(options, directory)
