"""What `barnabas start` sets for the whole process."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

from barnabas.cli.nodes.start_broker import GC_THRESHOLDS


def test_objects_of_a_large_request_are_collected_in_small_parts() -> None:
    """Only a full collection, which is rare, scans more than 200,000 objects."""
    looked_at: list[int] = []
    full: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase != "start":
            return
        if info["generation"] == 2:
            full.append(phase)
        else:
            looked_at.append(
                sum(len(gc.get_objects(each)) for each in range(info["generation"] + 1))
            )

    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.callbacks.append(note)
    try:
        request = [[number] for number in range(700_000)]
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*before)
        gc.unfreeze()
    assert len(request) == 700_000
    assert len(looked_at) > 10
    # Four young generations at most: three were counted, and the one that is full now.
    assert max(looked_at) < 4 * 50_000 + 10_000
    assert full == []


def test_a_file_in_place_of_the_directory_is_named_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("no directory")
    words = ["start", "--listen", "127.0.0.1:0", "--data-dir", str(path)]
    done = subprocess.run(
        [sys.executable, "-m", "barnabas.cli.main", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"barnabas: {path}: ")
    assert done.stderr.endswith(
        "a file with this name exists; use another directory: --data-dir DIR\n"
    )


def test_an_unknown_host_is_named_with_the_option(tmp_path: Path) -> None:
    words = ["start", "--listen", "no.such.host.invalid:9092", "--data-dir", str(tmp_path / "data")]
    done = subprocess.run(
        [sys.executable, "-m", "barnabas.cli.main", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("barnabas: no.such.host.invalid:9092: ")
    assert done.stderr.endswith("use a name or address of this machine: --listen HOST:PORT\n")
