"""Makes the C allocator keep freed memory, but not without a limit.

glibc returns the end of the heap to the kernel as soon as 128 KiB of it are free. A consumer frees
megabytes at every poll, a producer at every acknowledged batch, and a broker after every large
request. All need the memory again at once. Each page then causes a page fault again, which took an
eighth of a consumer's time, and a quarter of a broker's that receives large batches by TLS.

glibc raises the threshold to twice the size of a large block that is freed, because the program
will probably use such a block again: `keep_freed_memory` frees a large block. That is all that a
client may do in a process that it does not own. But there is a heap for each thread, each keeps up
to this threshold, and the largest block that was ever freed decides it, up to 64 MiB. A server owns
its process, and sets the limits with `limit_freed_memory`.
"""

from __future__ import annotations

import os

from barnabas.runtime.system.system_calls import set_allocator_option

__all__ = ["keep_freed_memory", "limit_freed_memory"]

# Blocks of 32 MiB and more do not affect glibc's threshold.
_BLOCK_BYTES = 16 << 20
# Options of glibc's mallopt, and the variables by which users set them.
_TRIM_THRESHOLD = (-1, "MALLOC_TRIM_THRESHOLD_")
_MMAP_THRESHOLD = (-3, "MALLOC_MMAP_THRESHOLD_")
_ARENA_MAX = (-8, "MALLOC_ARENA_MAX")


def keep_freed_memory(block_bytes: int = _BLOCK_BYTES) -> None:
    """Make the process keep up to twice the block's size of freed memory.

    The block is not used, so it costs two system calls and no memory. This has no effect if the
    user has set the thresholds (MALLOC_TRIM_THRESHOLD_), or with other allocators.
    """
    # The zeros come from the kernel; only one page is written.
    bytes(block_bytes)


def limit_freed_memory(kept_bytes: int, block_bytes: int) -> None:
    """Make the process keep up to `kept_bytes` of freed memory, in one heap for all threads.

    Other allocators than glibc's keep their limits, and so does each limit that the user has set by
    an environment variable. Call this before the process starts threads.

    Args:
        kept_bytes: Largest size of the free end of the heap.
        block_bytes: Larger blocks come from the kernel, and return to it when they are freed.
    """
    if "GLIBC_TUNABLES" in os.environ:
        return
    for (option, variable), value in (
        (_TRIM_THRESHOLD, kept_bytes),
        (_MMAP_THRESHOLD, block_bytes),
        (_ARENA_MAX, 1),
    ):
        if variable not in os.environ:
            set_allocator_option(option, value)
