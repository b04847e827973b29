"""Modules that a broker must not import before it responds."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from barnabas.testing.free_ports import free_ports
from fuzz.attacker import Attacker
from fuzz.grammar import SERVED_APIS
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

# Modules that cost milliseconds and are not needed before the first request. `dataclasses` compiles
# classes at each start, so values are instances of `msgspec.Struct`.
UNWANTED = {
    "aiokafka",
    "click",
    "cramjam",
    "dataclasses",
    "h11",
    "prometheus_client",
    "pyarrow",
    "rich",
}


PRELOADED = "Background imports finished"


def test_a_running_broker_imports_nothing_for_any_request(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    command = [sys.executable, "-X", "importtime", "-m", "barnabas.cli.main", "start"]
    words = ["--listen", f"127.0.0.1:{port}", "--data-dir", str(tmp_path / "data")]
    words += ["--log-level", "info"]
    log = tmp_path / "imports"
    with (
        log.open("w") as output,
        subprocess.Popen(command + words, stdout=subprocess.PIPE, stderr=output) as process,
    ):
        assert process.stdout
        try:
            assert process.stdout.readline().startswith(b"ready ")
            eventually(lambda: PRELOADED in log.read_text(), lambda: log.read_text()[-500:])
            attacker = Attacker(f"127.0.0.1:{port}", 7)
            tally = attacker.run(120, 6_000)
        finally:
            process.terminate()
    later = log.read_text().partition(PRELOADED)[2].splitlines()
    imported = {line.split("|")[-1].strip() for line in later if line.startswith("import time:")}
    assert len(tally.by_api) == len(SERVED_APIS)
    assert not imported


def test_a_start_imports_no_unnecessary_module(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "barnabas.cli.main", "start"]
    words = ["--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    log = tmp_path / "imports"
    with (
        log.open("w") as output,
        subprocess.Popen(command + words, stdout=subprocess.PIPE, stderr=output) as process,
    ):
        assert process.stdout
        ready = process.stdout.readline()
        # Each line has the format "import time: own | cumulated | module".
        imported = {line.split("|")[-1].strip() for line in log.read_text().splitlines()}
        process.terminate()
    assert ready.startswith(b"ready ")
    assert process.returncode == 0
    assert "barnabas.replication.replica_manager" in imported
    assert not imported & UNWANTED
