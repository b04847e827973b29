"""Each benchmark can be imported, and its budgets are judged by the worst round.

A renamed helper shows here, and not when `make bench` runs.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from bench.budgets import Budget, speed_verdict

BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCH.glob("*.py")))
def test_a_benchmark_can_be_imported(name: str) -> None:
    assert importlib.import_module(f"bench.{name}").__doc__ or name == "__init__"


def test_a_budget_is_judged_by_the_worst_round() -> None:
    rounds = {"barnabas": [1.0, 3.0], "kafka": [2.0, 4.0]}
    assert Budget({"kafka": 0.8}).verdict(rounds) == "<= 0.8x kafka met (worst 0.75x)"
    assert Budget({"kafka": 0.6}).verdict(rounds) == "<= 0.6x kafka MISSED (worst 0.75x)"
    assert Budget(at_most=2).verdict(rounds) == "<= 2 MISSED (worst 3.00)"
    assert speed_verdict([6.0, 9.0], [2.0, 4.0], 2) == ">= 2x met (worst 2.25x)"
    assert speed_verdict([6.0, 9.0], [2.0, 4.0], 3) == ">= 3x MISSED (worst 2.25x)"
