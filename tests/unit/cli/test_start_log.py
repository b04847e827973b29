"""The broker's log: quiet, or JSON; and its limit of open files."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.cli.nodes.start_broker import JsonFormatter
from barnabas.cli.nodes.start_options import StartOptions

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
