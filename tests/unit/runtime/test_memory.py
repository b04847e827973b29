"""Freed memory stays with the process: its reuse causes no page faults."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import resource, sys
from barnabas.runtime.system.memory import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()
before = 0
for _ in range(5):
    # 8 MB in blocks that come from the heap.
    blocks = [bytearray(100_000) for _ in range(80)]
    del blocks
    before = before or resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(mode: str) -> int:
    """Page faults of the rounds after the first."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, mode], check=True, capture_output=True, text=True
    )
    return int(done.stdout)


def test_freed_memory_is_not_returned_to_the_system() -> None:
    assert faults("kept") * 4 < faults("usual")
