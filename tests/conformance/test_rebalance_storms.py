"""The short form of `make storms`: members join, die, close and pause at random."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scenario.stage import runs_on_kafka
from selection import nightly_unless
from storms.campaign import CLASSIC, MODERN, started
from storms.storm import StormOptions, run_storm

pytestmark = [pytest.mark.conformance, pytest.mark.slow]

SEED = 10
ROUNDS = 8
PACE_S = 0.2


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    kind = "kafka" if runs_on_kafka() else "barnabas"
    with started(kind, tmp_path_factory.mktemp("broker")) as bootstrap:
        yield bootstrap


def storm(bootstrap: str, protocol: str, assignor: str, directory: Path) -> None:
    options = StormOptions(bootstrap, protocol, assignor, ROUNDS, SEED, PACE_S)
    outcome = run_storm(options, directory)
    print(f"{outcome.verdict} {outcome.events} drained in {outcome.drained_s:.1f} s")
    assert outcome.problems == []
    assert outcome.verdict.processed >= outcome.records > 0
    assert outcome.verdict.commits > 0


@pytest.mark.parametrize(
    "assignor", nightly_unless(lambda assignor: assignor == CLASSIC[-1], CLASSIC)
)
def test_a_classic_group_survives_random_membership_changes(
    own_broker: str, assignor: str, tmp_path: Path
) -> None:
    storm(own_broker, "classic", assignor, tmp_path)


@pytest.mark.parametrize("assignor", nightly_unless(lambda assignor: assignor == MODERN[0], MODERN))
def test_a_consumer_protocol_group_survives_random_membership_changes(
    own_broker: str, assignor: str, tmp_path: Path
) -> None:
    storm(own_broker, "consumer", assignor, tmp_path)
