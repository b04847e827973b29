"""Buffers for large frames: reused, bounded, and limited for unverified lengths."""

from __future__ import annotations

import pytest

from barnabas.network.frame_buffers import FrameBuffers, may_keep

MIB = 1 << 20


def test_a_returned_buffer_is_reused() -> None:
    buffers = FrameBuffers()
    first = buffers.take(3 * MIB, 1000)
    assert 3 * MIB <= len(first) < 3.5 * MIB
    identity = id(first.obj)
    buffers.give_back(first)
    assert id(buffers.take(2 * MIB, 1000).obj) == identity
    assert buffers.kept_bytes == 0


def test_a_buffer_with_a_view_is_not_reused_before_the_view_is_gone() -> None:
    buffers = FrameBuffers()
    first = buffers.take(MIB, 0)
    identity = id(first.obj)
    first[:] = b"r" * len(first)
    records = first[10 : MIB // 2]
    buffers.give_back(first)
    other = buffers.take(MIB, 0)
    other[:] = b"x" * len(other)
    assert records == b"r" * (MIB // 2 - 10)
    assert id(other.obj) != identity
    del records
    assert id(buffers.take(MIB, 0).obj) == identity


@pytest.mark.parametrize(
    ("frame", "view", "kept"),
    [(MIB, MIB // 4, True), (MIB, 100_000, False), (4 * MIB, MIB // 4, False)],
)
def test_only_a_large_part_of_a_frame_may_be_kept(frame: int, view: int, kept: bool) -> None:
    assert may_keep(FrameBuffers().take(frame, 0)[:view]) is kept


def test_a_view_of_another_buffer_may_not_be_kept() -> None:
    assert not may_keep(memoryview(bytearray(MIB)))


def test_two_buffers_in_use_are_distinct() -> None:
    buffers = FrameBuffers()
    assert buffers.take(MIB, 0) is not buffers.take(MIB, 0)


@pytest.mark.parametrize("arrived", [10, 3 * MIB, 50 * MIB])
def test_a_forged_length_allocates_at_most_the_trusted_size_or_twice_the_received_bytes(
    arrived: int,
) -> None:
    buffer = FrameBuffers(trusted_bytes=4 * MIB).take(2000 * MIB, arrived)
    assert arrived < len(buffer) <= 1.25 * max(4 * MIB, 2 * arrived)


def test_kept_buffers_are_the_largest_within_the_limit() -> None:
    buffers = FrameBuffers(kept_bytes_max=5 * MIB)
    small, large, huge = (buffers.take(size * MIB, size * MIB) for size in (1, 4, 6))
    for buffer in (large, small):
        buffers.give_back(buffer)
    assert buffers.kept_bytes == 5 * MIB
    large = buffers.take(2 * MIB, 0)
    assert len(large) == 4 * MIB
    buffers.give_back(huge)
    assert buffers.kept_bytes == 0
    buffers.give_back(large)
    assert buffers.kept_bytes == 4 * MIB


def test_frames_of_similar_size_share_a_buffer() -> None:
    buffers = FrameBuffers()
    seen = set()
    for size in range(MIB, MIB + 60_000, 1000):
        buffer = buffers.take(size, 0)
        seen.add(id(buffer.obj))
        buffers.give_back(buffer)
    assert len(seen) <= 2
    assert buffers.kept_bytes < 2.5 * MIB
