"""The systemd unit, checked by systemd's own tools."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "deploy/systemd/barnabas.service"
COMMAND = "/opt/barnabas/bin/barnabas"
# systemd's scale goes from 0 (closed) to 10 (open) and calls less than 2.5 well protected. The
# option of `systemd-analyze` takes tenths.
EXPOSURE_MAX = "20"

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze (package systemd) is missing"
)


def analyze(*words: str) -> str:
    done = subprocess.run(
        ["systemd-analyze", *words], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@needs_systemd
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    text = UNIT.read_text()
    assert f"ExecStart={COMMAND} start " in text
    # systemd checks that the command is there.
    unit.write_text(text.replace(COMMAND, str(Path(sys.executable).parent / "barnabas")))
    assert analyze("verify", str(unit)).strip() == ""


@needs_systemd
def test_the_unit_denies_access_that_a_broker_does_not_need() -> None:
    said = analyze(
        "security", "--offline=true", "--no-pager", f"--threshold={EXPOSURE_MAX}", str(UNIT)
    )
    assert "Overall exposure level" in said


def test_systemd_waits_until_the_broker_reports_that_it_is_ready() -> None:
    lines = UNIT.read_text().splitlines()
    assert "Type=notify" in lines
    assert "WatchdogSec=60s" in lines
