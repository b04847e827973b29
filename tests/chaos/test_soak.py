"""The short form of `make soak`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from chaos.outcome import summary
from chaos.side.conversions import ConversionLoad, OldClientLoad
from chaos.side.upkeep import AdminLoad, CompactedLoad, TelemetryLoad
from chaos.soak import resource_table, run, soak_options

SECONDS = 5.0
SIDES = (ConversionLoad, OldClientLoad, CompactedLoad, AdminLoad, TelemetryLoad)


@pytest.mark.conformance
@pytest.mark.slow
@pytest.mark.nightly
def test_a_short_soak_leaves_no_error_and_no_damage(tmp_path: Path) -> None:
    # The other loads of a soak run in the short campaigns (`test_chaos`).
    options = replace(
        soak_options(SECONDS, seed=1, rate=100),
        has_groups=False,
        transactional=None,
        sides=tuple(side.name for side in SIDES),
    )
    outcome = run(options, tmp_path, lambda _: None)
    print(f"{summary(outcome)}\n{resource_table(outcome)}")
    assert outcome.problems == []
    assert outcome.records > SECONDS
    assert sorted(outcome.sides) == sorted(options.sides)
    assert [use.descriptors[1] > 0 for use in outcome.resources.values()] == [True] * 3
