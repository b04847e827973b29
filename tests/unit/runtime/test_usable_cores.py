"""The number of cores by affinity and by the limits of control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from barnabas.runtime.usable_cores import usable_cores


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def cores(directory: Path) -> int:
    return usable_cores(directory / "groups", directory)


def test_without_control_groups_the_affinity_counts(tmp_path: Path) -> None:
    assert cores(tmp_path) == 8


@pytest.mark.parametrize(
    ("limit", "expected"), [("max 100000", 8), ("250000 100000", 2), ("50000 100000", 1)]
)
def test_a_group_of_version_2_limits_the_cores(tmp_path: Path, limit: str, expected: int) -> None:
    write(tmp_path / "groups", "0::/service/broker\n")
    write(tmp_path / "service/broker/cpu.max", f"{limit}\n")
    assert cores(tmp_path) == expected


def test_a_group_above_limits_too(tmp_path: Path) -> None:
    write(tmp_path / "groups", "0::/service/broker\n")
    write(tmp_path / "service/broker/cpu.max", "400000 100000\n")
    write(tmp_path / "service/cpu.max", "300000 100000\n")
    assert cores(tmp_path) == 3


@pytest.mark.parametrize(("quota", "expected"), [("-1", 8), ("600000", 6)])
def test_a_group_of_version_1_limits_the_cores(tmp_path: Path, quota: str, expected: int) -> None:
    write(tmp_path / "groups", "4:memory:/a\n2:cpu,cpuacct:/a\n")
    write(tmp_path / "cpu/a/cpu.cfs_quota_us", quota)
    write(tmp_path / "cpu/a/cpu.cfs_period_us", "100000")
    assert cores(tmp_path) == expected
