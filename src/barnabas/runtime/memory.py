"""What the C allocator does with memory that was freed.

glibc gives the end of the heap back to the kernel as soon as 128 KiB of it are free. A consumer
frees megabytes at every poll, a producer with every batch that is acknowledged, and both want them
again at once: each of their pages was a fault again, an eighth of a consumer's time. The threshold
is not Python's to set, but glibc raises it by itself to twice the size of a large block that is
freed: who used one will use another.
"""

from __future__ import annotations

__all__ = ["keep_freed_memory"]

# Of 32 MiB the allocator takes no notice any more.
_BLOCK_BYTES = 16 << 20


def keep_freed_memory() -> None:
    """Have up to twice the block's size stay with the process once it is freed.

    The block is never touched, so it costs two system calls and no memory. Where the user has set
    the thresholds himself (MALLOC_TRIM_THRESHOLD_), and with other allocators, nothing changes.
    """
    # Zeroes that the kernel gives, one page of which is written.
    bytes(_BLOCK_BYTES)
