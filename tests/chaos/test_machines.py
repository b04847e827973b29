"""Whole machines die under load: both brokers and the controller of one, at the same time.

The topic has three replicas and min.insync.replicas=2. Its replicas are on three machines, so every
partition stays writable while one machine is down, and no acknowledged record is lost.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.campaign import Options
from chaos.outcome import Outcome
from chaos.short_campaign import SETTINGS, check_campaign
from machines import needs_loopback_addresses
from scenario.stage import runs_on_kafka

pytestmark = [pytest.mark.conformance, pytest.mark.slow, needs_loopback_addresses]
MACHINE_DIES = "kill -9 of a machine"


@pytest.mark.parametrize(
    ("seconds", "seed"), [(20.0, 21), pytest.param(300.0, 22, marks=pytest.mark.nightly)]
)
def test_partitions_stay_writable_and_lose_nothing_while_a_machine_is_down(
    tmp_path: Path, seconds: float, seed: int
) -> None:
    outcome = check_machines(tmp_path, seconds, seed, MACHINE_DIES)
    assert {event.name for event in outcome.events} == {MACHINE_DIES}


@pytest.mark.nightly
def test_machines_and_single_brokers_die_in_turn_without_loss(tmp_path: Path) -> None:
    faults = (MACHINE_DIES, "kill -9 of a leader", "kill -9 of the active controller")
    check_machines(tmp_path, 180.0, 23, *faults)


def check_machines(directory: Path, seconds: float, seed: int, *faults: str) -> Outcome:
    """Run a campaign with two brokers and a controller on each machine, and check its outcome."""
    options = Options(
        seconds,
        seed,
        runs_on_kafka(),
        brokers=6,
        controllers=3,
        rate=100,
        faults=faults,
        relays=False,
        settings=SETTINGS,
        machines=True,
    )
    return check_campaign(options, directory)
