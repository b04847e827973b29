"""Makes the C allocator keep freed memory.

glibc returns the end of the heap to the kernel as soon as 128 KiB of it are free. A consumer frees
megabytes at every poll, a producer at every acknowledged batch, and a broker after every large
request. All need the memory again at once. Each page then causes a page fault again, which took an
eighth of a consumer's time, and a quarter of a broker's that receives large batches by TLS. Python
cannot set the threshold. But glibc raises it to twice the size of a large block that is freed,
because the program will probably use such a block again.
"""

from __future__ import annotations

__all__ = ["keep_freed_memory"]

# Blocks of 32 MiB and more do not affect glibc's threshold.
_BLOCK_BYTES = 16 << 20


def keep_freed_memory(block_bytes: int = _BLOCK_BYTES) -> None:
    """Make the process keep up to twice the block's size of freed memory.

    The block is not used, so it costs two system calls and no memory. This has no effect if the
    user has set the thresholds (MALLOC_TRIM_THRESHOLD_), or with other allocators.
    """
    # The zeros come from the kernel; only one page is written.
    bytes(block_bytes)
