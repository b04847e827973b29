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


_RECEIVING = """
import resource, sys
from barnabas.protocol.frame import FrameSplitter
from barnabas.runtime.system.memory import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory(4 << 20)
frame = (1_000_000).to_bytes(4, "big") + bytes(1_000_000)
splitters = [FrameSplitter(2_000_000) for _ in range(2)]
before = 0
for _ in range(5):
    for start in range(0, len(frame), 16_384):
        for splitter in splitters:
            rest = frame[start : start + 16_384]
            while rest:
                buffer = splitter.get_buffer()
                count = min(len(buffer), len(rest))
                buffer[:count] = rest[:count]
                rest = rest[count:]
                for _ in splitter.received(count):
                    pass
    before = before or resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(mode: str, program: str = _PROGRAM) -> int:
    """Page faults of the rounds after the first."""
    done = subprocess.run(
        [sys.executable, "-c", program, mode], check=True, capture_output=True, text=True
    )
    return int(done.stdout)


def test_freed_memory_is_not_returned_to_the_system() -> None:
    assert faults("kept") * 4 < faults("usual")


def test_large_requests_are_received_without_page_faults() -> None:
    assert faults("kept", _RECEIVING) * 4 < faults("usual", _RECEIVING)
