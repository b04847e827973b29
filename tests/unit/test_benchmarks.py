"""Each benchmark can be imported, and its budgets are judged by the worst round.

A renamed helper shows here, and not when `make bench` runs.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from bench.budgets import Budget, speed_verdict
from bench.floors import Shape, produce_and_consume
from bench.node import CORES, Run
from bench.raw_load import TRAIN_BYTES, prepared_batch, run_clients

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


def test_the_bound_of_a_node_is_what_the_cores_allow() -> None:
    # 2 s of brokers and 1 s of clients for a GB.
    run = Run(gb=1.0, seconds=4.0, broker_cpu=2.0, client_cpu=1.0, other_cpu=1.0)
    assert run.speed == 250
    assert run.bound(CORES) == pytest.approx(1000 * CORES / 3)
    assert run.reached(CORES) == pytest.approx(250 / run.bound(CORES))


def test_one_broker_process_is_also_bound_by_its_core() -> None:
    run = Run(gb=1.0, seconds=4.0, broker_cpu=2.0, client_cpu=0.0, other_cpu=0.0)
    assert run.bound(1) == pytest.approx(500)


def test_the_trains_of_a_sender_have_the_wanted_bytes() -> None:
    batch = prepared_batch(100, 16 * 1024)
    assert 15 * 1024 < len(batch.encoded) <= 16 * 1024
    assert batch.value_bytes == 100 * batch.records
    assert TRAIN_BYTES // 2 < batch.per_train * len(batch.encoded) <= TRAIN_BYTES
    assert batch.sent_bytes(100_000_000, 4) == pytest.approx(100_000_000, rel=0.01)


def test_a_client_that_fails_ends_the_benchmark() -> None:
    def fail() -> None:
        raise ConnectionError("refused")

    spent = run_clients([lambda: None, lambda: None])
    assert spent.cpu_seconds >= 0
    with pytest.raises(SystemExit, match="refused"):
        run_clients([lambda: None, fail])


def test_the_floor_is_measured_for_both_directions() -> None:
    produced, consumed = produce_and_consume(Shape(16_384, 0.93), 64_000_000)
    assert produced > 0
    assert consumed > 0
