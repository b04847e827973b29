"""Campaigns of the test suite: short sessions, and what each campaign must show."""

from __future__ import annotations

from pathlib import Path

from chaos.campaign import Options, run
from chaos.outcome import Outcome, summary, table

# The controller fences a silent node sooner than by default, so that the tests take less time.
SETTINGS = (("broker.session.timeout.ms", "3000"), ("broker.heartbeat.interval.ms", "500"))


def check_campaign(options: Options, directory: Path) -> Outcome:
    """Run a campaign, and check that nothing was lost and that clients have progressed."""
    outcome = run(options, directory)
    print(f"{summary(outcome)}\n{table(outcome)}\n{outcome.evidence}")
    assert outcome.problems == []
    assert outcome.failed_sends == 0
    assert outcome.records > 1000
    assert outcome.read_by_group >= outcome.records
    assert outcome.events
    return outcome
