"""Freed memory stays with the process up to a limit: its reuse causes no page faults."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_PROGRAM = """
import resource, sys
from barnabas.runtime.system_calls import keep_freed_memory

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
from barnabas.network.framed_protocol import FrameSplitter
from barnabas.runtime.system_calls import limit_freed_memory

if sys.argv[1] == "kept":
    limit_freed_memory(8 << 20, 4 << 20)
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


# Each thread frees the memory of many conversions, after one that was large.
_THREADS = """
import sys, threading
from barnabas.runtime.system_calls import keep_freed_memory, limit_freed_memory

if sys.argv[1] == "limited":
    limit_freed_memory(8 << 20, 4 << 20)
elif sys.argv[1] == "kept":
    keep_freed_memory(4 << 20)
THREADS = 4
barrier = threading.Barrier(THREADS)

def work():
    large = b"." * (24 << 20)
    del large
    barrier.wait()
    blocks = [b"." * (1 << 20) for _ in range(24)]
    barrier.wait()
    del blocks
    barrier.wait()

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4

before = resident()
threads = [threading.Thread(target=work) for _ in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(resident() - before)
"""


def faults(mode: str, program: str = _PROGRAM, **variables: str) -> int:
    """The number that a program prints: page faults of the rounds after the first."""
    done = subprocess.run(
        [sys.executable, "-c", program, mode],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )
    return int(done.stdout)


def test_freed_memory_is_not_returned_to_the_system() -> None:
    assert faults("kept") * 4 < faults("usual")


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has these limits")
def test_large_requests_are_received_without_page_faults() -> None:
    assert faults("kept", _RECEIVING) * 4 < faults("usual", _RECEIVING)


def kept_kib(mode: str, **variables: str) -> int:
    """The memory that threads have left in the process."""
    return faults(mode, _THREADS, **variables)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_freed_memory_of_all_threads_together_is_limited() -> None:
    assert kept_kib("limited") < 12 << 10
    assert kept_kib("kept") > 24 << 10


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_limits_of_the_user_have_priority() -> None:
    trim, block = 256 << 20, 32 << 20
    variables = {"MALLOC_TRIM_THRESHOLD_": f"{trim}", "MALLOC_MMAP_THRESHOLD_": f"{block}"}
    tunables = f"glibc.malloc.trim_threshold={trim}:glibc.malloc.mmap_threshold={block}"
    assert kept_kib("limited", **variables) > 24 << 10
    assert kept_kib("limited", GLIBC_TUNABLES=tunables) > 24 << 10
