"""The short form of `make chaos CHAOS=--tier`: faults of brokers and of the store of their tier."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from chaos.campaign import Options
from chaos.faults import FAULTS
from chaos.outcome import Outcome
from chaos.short_campaign import SETTINGS, check_campaign
from chaos.tier.tier_faults import TIER_FAULTS
from chaos.tier.tier_loads import TIER_LOADS
from chaos.transactional_load import TransactionalOptions
from scenario.stage import runs_on_kafka

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.slow,
    pytest.mark.skipif(runs_on_kafka(), reason="the store fails in our nodes only"),
]
SHORT_S, LONG_S = 6.0, 60.0
# A fault of each kind, which do not last long.
CHOSEN = ("kill -9 in a copy", "object lost", "store stopped", "store fails at times")


def check(options: Options, directory: Path) -> Outcome:
    """Run a campaign with a tier, whose side loads have found nothing."""
    outcome = check_campaign(options, directory)
    assert outcome.sides.keys() >= {each.name for each in TIER_LOADS}
    return outcome


def test_tiered_records_survive_faults_of_the_store_and_kills_in_copies(tmp_path: Path) -> None:
    options = Options(SHORT_S, 18, faults=CHOSEN, settings=SETTINGS, has_tier=True)
    check(replace(options, partitions=2, rate=200), tmp_path)


@pytest.mark.nightly
def test_tiered_records_survive_all_faults(tmp_path: Path) -> None:
    chosen = tuple(fault.name for fault in (*FAULTS, *TIER_FAULTS))
    check(Options(LONG_S, 19, faults=chosen, settings=SETTINGS, has_tier=True), tmp_path)


@pytest.mark.nightly
def test_transactions_and_all_groups_read_from_the_tier_under_faults(tmp_path: Path) -> None:
    chosen = tuple(fault.name for fault in (*FAULTS, *TIER_FAULTS) if fault.name != "full disk")
    options = Options(LONG_S, 20, faults=chosen, settings=SETTINGS, has_tier=True)
    options = replace(options, has_groups=True, transactional=TransactionalOptions())
    outcome = check(options, tmp_path)
    assert outcome.transactions_verdict == "no faults"
    assert outcome.share_verdict == "no faults"
