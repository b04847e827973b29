"""The short form of `make chaos`.

Each test injects random faults from a fixed seed for some seconds, while clients write and read.
Then the checker of the campaign examines everything that the clients saw.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from chaos.campaign import Options
from chaos.faults import FAULTS
from chaos.short_campaign import SETTINGS, check_campaign
from chaos.storage_faults import STORAGE_FAULTS
from chaos.transactional_load import TransactionalOptions
from scenario.stage import runs_on_kafka

SECONDS = 15.0


@pytest.mark.conformance
@pytest.mark.slow
def test_groups_of_all_types_read_records_that_survive_random_faults(tmp_path: Path) -> None:
    # A story in `tests/scenario` tests a full disk in more detail.
    chosen = tuple(fault.name for fault in FAULTS if fault.name != "full disk")
    options = Options(
        SECONDS, 11, runs_on_kafka(), faults=chosen, settings=SETTINGS, has_groups=True
    )
    outcome = check_campaign(options, tmp_path)
    # Beside the classic group, there are a consumer group, a share group and a streams group.
    assert outcome.read_by_modern_group >= outcome.records
    assert outcome.delivered_to_share_group > 0
    assert outcome.share_verdict == "no faults"
    assert outcome.committed_by_streams_group > 0
    assert outcome.streams_verdict == "no faults"


# `test_full_disk` and the simulations show the same of single faults.
@pytest.mark.nightly
@pytest.mark.conformance
@pytest.mark.slow
@pytest.mark.skipif(runs_on_kafka(), reason="calls fail and clocks jump in our nodes only")
def test_records_survive_disk_and_clock_faults_once_and_in_order(tmp_path: Path) -> None:
    chosen = tuple(fault.name for fault in STORAGE_FAULTS)
    check_campaign(Options(SECONDS, 12, faults=chosen, settings=SETTINGS), tmp_path)


@pytest.mark.conformance
@pytest.mark.slow
def test_transactions_are_atomic_under_random_faults(tmp_path: Path) -> None:
    on_kafka = runs_on_kafka()
    # A coordinator of Kafka that is cut off returns outdated offsets: records are processed twice.
    chosen = tuple(
        fault.name
        for fault in FAULTS
        if fault.name != "full disk" and not (on_kafka and "cut off" in fault.name)
    )
    options = Options(SECONDS, 13, on_kafka, faults=chosen, settings=SETTINGS)
    outcome = check_campaign(replace(options, transactional=TransactionalOptions()), tmp_path)
    assert outcome.transactions_verdict == "no faults"


@pytest.mark.nightly
@pytest.mark.conformance
@pytest.mark.slow
@pytest.mark.skipif(runs_on_kafka(), reason="Kafka's coordinator returns outdated offsets then")
def test_no_record_is_processed_twice_while_a_group_has_two_coordinators(tmp_path: Path) -> None:
    options = Options(SECONDS, 14, faults=("group coordinator cut off",), settings=SETTINGS)
    outcome = check_campaign(replace(options, transactional=TransactionalOptions()), tmp_path)
    assert outcome.transactions_verdict == "no faults"


@pytest.mark.nightly
@pytest.mark.conformance
@pytest.mark.slow
@pytest.mark.skipif(runs_on_kafka(), reason="timers raise in our nodes only")
def test_timers_that_raise_end_neither_expiry_nor_transactions(tmp_path: Path) -> None:
    options = Options(
        SECONDS, 15, faults=("timers that raise",), settings=SETTINGS, sides=("staged offsets",)
    )
    outcome = check_campaign(replace(options, transactional=TransactionalOptions()), tmp_path)
    assert outcome.transactions_verdict == "no faults"


@pytest.mark.conformance
@pytest.mark.slow
@pytest.mark.nightly
def test_clients_follow_topics_that_are_made_anew_or_get_partitions(tmp_path: Path) -> None:
    options = Options(
        SECONDS,
        16,
        runs_on_kafka(),
        faults=("kill -9 of a leader",),
        settings=SETTINGS,
        sides=("recreated topics", "added partitions"),
    )
    check_campaign(options, tmp_path)


@pytest.mark.conformance
@pytest.mark.slow
@pytest.mark.skipif(runs_on_kafka(), reason="our nodes have standard streams of their own")
def test_a_broker_without_standard_streams_serves_and_stops(tmp_path: Path) -> None:
    faults = ("closed standard streams",)
    check_campaign(Options(5.0, 17, faults=faults, settings=SETTINGS), tmp_path)
