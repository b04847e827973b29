"""Each benchmark can be imported: a renamed helper shows here, and not when `make bench` runs."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCH.glob("*.py")))
def test_a_benchmark_can_be_imported(name: str) -> None:
    assert importlib.import_module(f"bench.{name}").__doc__ or name == "__init__"
