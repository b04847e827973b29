"""The short form of `make link-chaos`: faults of two linked clusters from a fixed seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.link_campaign import MOVE, LinkOutcome, run, summary
from chaos.links.link_stress import LinkOptions

# For a campaign that hangs: six brokers and their clients share the processors.
pytestmark = [pytest.mark.conformance, pytest.mark.nightly, pytest.mark.timeout(3600)]
SECONDS = 40.0


def check(options: LinkOptions, directory: Path) -> LinkOutcome:
    """Run a campaign, and check that nothing was lost and that clients have progressed."""
    outcome = run(options, directory, print)
    print(summary(outcome))
    assert outcome.problems == []
    assert outcome.records > 100
    assert outcome.events
    return outcome


def test_mirrors_keep_all_records_under_random_faults(tmp_path: Path) -> None:
    check(LinkOptions(SECONDS, 21), tmp_path)


def test_topics_move_to_the_other_cluster_and_back_while_nodes_are_killed(tmp_path: Path) -> None:
    outcome = check(LinkOptions(SECONDS, 22, faults=(MOVE,)), tmp_path)
    assert {event.name for event in outcome.events} == {MOVE}
