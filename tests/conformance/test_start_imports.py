"""A broker answers in a fraction of a second: what it must not import before."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# Modules that cost milliseconds and that nothing needs before the first request, if ever. A class
# made by `dataclasses` is compiled at each start: `msgspec.Struct` is there for values.
UNWANTED = {"aiokafka", "click", "dataclasses", "h11", "prometheus_client", "pyarrow", "rich"}


def test_a_start_imports_no_module_that_it_can_do_without(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "barnabas.cli.main", "start"]
    words = ["--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    log = tmp_path / "imports"
    with (
        log.open("w") as output,
        subprocess.Popen(command + words, stdout=subprocess.PIPE, stderr=output) as process,
    ):
        assert process.stdout
        ready = process.stdout.readline()
        # "import time: own | cumulated | module", a line for each.
        imported = {line.split("|")[-1].strip() for line in log.read_text().splitlines()}
        process.terminate()
    assert ready.startswith(b"ready ")
    assert process.returncode == 0
    assert "barnabas.replication.replica_manager" in imported
    assert not imported & UNWANTED
