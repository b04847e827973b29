"""How client commands end: in particular when nobody reads their output any more."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import sys
from barnabas.cli.output import connected
with connected("127.0.0.1:1", ()):
    sys.stdin.read()
    sys.stdout.write("x" * {size})
"""
SECONDS = 60


def test_output_that_nobody_reads_is_no_failure_and_no_traceback() -> None:
    for size in (10, 1_000_000):
        reading, writing = os.pipe()
        os.close(reading)
        try:
            done = subprocess.run(
                [sys.executable, "-c", SCRIPT.format(size=size)],
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=subprocess.PIPE,
                timeout=SECONDS,
                check=False,
            )
        finally:
            os.close(writing)
        assert (done.returncode, done.stderr) == (0, b"")
