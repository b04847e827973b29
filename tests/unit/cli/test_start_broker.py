"""What `barnabas start` sets for the whole process: collections, log and limit of open files."""

from __future__ import annotations

import gc
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.cli.nodes.start_broker import GC_THRESHOLDS, JsonFormatter
from barnabas.cli.nodes.start_options import StartOptions


def test_objects_of_a_large_request_are_collected_in_small_parts() -> None:
    """Only a full collection, which is rare, scans more than 40,000 objects."""
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
    assert len(looked_at) > 50
    # Four young generations at most: three were counted, and the one that is full now.
    assert max(looked_at) < 4 * 10_000 + 5_000
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


LIMITED = """
import logging, resource
logging.basicConfig(format="%(message)s")
from barnabas.cli.nodes.start_broker import raise_open_files_limit
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
print(raise_open_files_limit(), resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def limited(soft: int, hard: int) -> tuple[str, str]:
    """Return both outputs of a process with these limits."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED.format(soft=soft, hard=hard)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip(), done.stderr.strip()


def test_the_limit_of_open_files_is_raised_to_the_hard_limit() -> None:
    assert limited(256, 5000) == ("5000 (5000, 5000)", "")


def test_a_low_limit_of_open_files_logs_a_warning() -> None:
    out, warning = limited(256, 300)
    assert out.startswith("300 ")
    assert "At most 300 files" in warning


def test_a_node_does_not_start_with_too_few_open_files(tmp_path: Path) -> None:
    code = (
        "import resource; from barnabas.cli.main import main;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30));"
        f"main(['start', '--port', '0', '--data-dir', {str(tmp_path)!r}])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=90
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "barnabas: at most 30 files and connections can be open at once, and a node needs at least "
        "128: raise the limit (ulimit -Hn, or LimitNOFILE= of the service)\n"
    )
    assert not list(tmp_path.iterdir())


def test_a_json_line_has_the_same_content_as_a_text_line() -> None:
    try:
        raise ValueError("because\nof this")
    except ValueError:
        record = logging.LogRecord(
            "barnabas.x", logging.ERROR, "f", 1, "failed: %s", ("€",), sys.exc_info()
        )
    text = JsonFormatter().format(record)
    assert "\n" not in text
    line = json.loads(text)
    assert (line["level"], line["logger"], line["message"]) == ("ERROR", "barnabas.x", "failed: €")
    assert line["timestamp"].endswith("+00:00")
    assert "because" in line["exception"]


@pytest.mark.parametrize("form", [["--metrics", "h:1"], ["--metrics=h:1"]])
def test_the_options_are_read_without_click(form: list[str]) -> None:
    options = StartOptions.parse([*form, "--log-format", "json", "--log-level=debug"])
    assert options is not None
    assert (options.metrics, options.log_format, options.log_level) == ("h:1", "json", "debug")
