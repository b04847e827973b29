"""The short form of `make chaos`: some faults of a fixed seed, under the same checker."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.campaign import Options, run, summary, table
from chaos.faults import FAULTS
from scenario.stage import runs_on_kafka

SECONDS = 25.0
# Silent nodes are given up sooner than by default, for the sake of the time this takes.
SETTINGS = (("broker.session.timeout.ms", "3000"), ("broker.heartbeat.interval.ms", "500"))


@pytest.mark.conformance
@pytest.mark.slow
def test_nothing_is_lost_doubled_or_reordered_while_faults_come_by_chance(tmp_path: Path) -> None:
    # A full disk has a story of its own, which says more of it.
    chosen = tuple(fault.name for fault in FAULTS if fault.name != "full disk")
    options = Options(SECONDS, 11, runs_on_kafka(), faults=chosen, settings=SETTINGS)
    outcome = run(options, tmp_path)
    print(f"{summary(outcome)}\n{table(outcome)}\n{outcome.evidence}")
    assert outcome.problems == []
    assert outcome.failed_sends == 0
    assert outcome.records > 1000
    assert outcome.read_by_group >= outcome.records
    assert outcome.events
