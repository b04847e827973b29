"""A console process on a free port, and the lines that it prints."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# The line with the address, which has no slash at its end.
READY = r"ready (\S+)/\n"


@contextmanager
def console_output(*options: str) -> Iterator[IO[str]]:
    """Start a console, and end it; yield its standard output."""
    words = [sys.executable, "-m", "barnabas", "console", "--port", "0", *options]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.terminate()


def read_line(output: IO[str], pattern: str) -> str:
    """Return the group of the next line that matches a pattern; other lines are about brokers.

    Raises:
        EOFError: the console ended without such a line.
    """
    for line in output:
        if found := re.fullmatch(pattern, line):
            return found[1]
    raise EOFError(f"the console ended without a line like {pattern!r}")
