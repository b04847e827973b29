"""Frames come out of a stream complete and in order, for any split."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings, strategies as st

from barnabas.network.frame_buffers import FrameBuffers
from barnabas.network.framed_protocol import FrameSplitter
from barnabas.protocol.errors import ProtocolError


def frame(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def feed(splitter: FrameSplitter, data: bytes, sizes: list[int]) -> list[bytes]:
    """Pass `data` to the splitter in pieces of at most these sizes, as a socket would."""
    found = []
    position = 0
    turn = 0
    while position < len(data):
        buffer = splitter.get_buffer(-1)
        size = min(sizes[turn % len(sizes)], len(buffer), len(data) - position)
        buffer[:size] = data[position : position + size]
        found += [bytes(each) for each in splitter.received(size)]
        position += size
        turn += 1
    return found


@settings(max_examples=200)
@given(
    st.lists(st.integers(0, 90_000), max_size=12),
    st.lists(st.integers(1, 40_000), min_size=1, max_size=8),
    st.integers(0, 200_000),
    st.integers(0, 100_000),
)
def test_large_frames_use_reusable_buffers(
    lengths: list[int], sizes: list[int], kept: int, trusted: int
) -> None:
    frames = [bytes([index % 251]) * length for index, length in enumerate(lengths)]
    buffers = FrameBuffers(kept, trusted)
    splitter = FrameSplitter(90_000, bytearray(500), buffers)
    assert feed(splitter, b"".join(map(frame, frames)), sizes) == frames
    assert splitter.pending_bytes == 0
    assert buffers.kept_bytes <= kept


@settings(max_examples=200)
@given(
    st.lists(st.integers(0, 300), max_size=12),
    st.lists(st.integers(1, 400), min_size=1, max_size=8),
    st.integers(16, 500),
)
def test_any_chunking_yields_the_same_frames(
    lengths: list[int], sizes: list[int], shared_size: int
) -> None:
    frames = [bytes([index % 251]) * length for index, length in enumerate(lengths)]
    splitter = FrameSplitter(1000, bytearray(shared_size))
    assert feed(splitter, b"".join(map(frame, frames)), sizes) == frames
    assert splitter.pending_bytes == 0


def test_several_connections_share_one_receive_buffer() -> None:
    shared = bytearray(64)
    splitters = [FrameSplitter(10_000, shared) for _ in range(3)]
    frames = [[bytes([65 + index]) * size for size in (5, 200, 0, 63)] for index in range(3)]
    streams = [b"".join(map(frame, each)) for each in frames]
    found: list[list[bytes]] = [[], [], []]
    for start in range(0, max(map(len, streams)), 7):
        for index, splitter in enumerate(splitters):
            found[index] += feed(splitter, streams[index][start : start + 7], [7])
    assert found == frames


def test_whole_frames_are_views_into_the_shared_buffer() -> None:
    shared = bytearray(64)
    splitter = FrameSplitter(100, shared)
    splitter.get_buffer()[:7] = frame(b"abc")
    for view in splitter.received(7):
        shared[4] = ord("x")
        assert bytes(view) == b"xbc"


def test_a_frame_is_released_when_the_next_one_is_requested() -> None:
    splitter = FrameSplitter(100, bytearray(64))
    splitter.get_buffer()[:7] = frame(b"abc")
    (view,) = splitter.received(7)
    with pytest.raises(ValueError, match="released"):
        bytes(view)


def test_the_last_frame_of_a_read_has_no_other_one_behind_it() -> None:
    splitter = FrameSplitter(100, bytearray(64))
    data = frame(b"abc") + frame(b"defgh")
    splitter.get_buffer()[:10] = data[:10]
    assert [splitter.has_more for _ in splitter.received(10)] == [True]
    for part in (data[10:11], data[11:]):
        splitter.get_buffer()[: len(part)] = part
        found = [(bytes(view), splitter.has_more) for view in splitter.received(len(part))]
    assert found == [(b"defgh", False)]


@pytest.mark.parametrize("first", [1, 3, 4, 10])
def test_the_rest_of_a_small_frame_arrives_with_the_next_frames(first: int) -> None:
    splitter = FrameSplitter(100, bytearray(64))
    data = frame(b"abcdefgh") + frame(b"ij")
    splitter.get_buffer()[:first] = data[:first]
    assert list(splitter.received(first)) == []
    assert splitter.own_bytes == first
    splitter.get_buffer()[: len(data) - first] = data[first:]
    found = [(bytes(each), splitter.has_more) for each in splitter.received(len(data) - first)]
    assert found == [(b"abcdefgh", True), (b"ij", False)]
    assert splitter.own_bytes == 0


@pytest.mark.parametrize("length", [-1, -(2**31), 1001, 2**31 - 1])
def test_an_invalid_length_is_an_error(length: int) -> None:
    splitter = FrameSplitter(1000)
    splitter.get_buffer()[:4] = struct.pack(">i", length)
    with pytest.raises(ProtocolError, match="1000"):
        list(splitter.received(4))


def test_an_invalid_length_that_arrives_byte_by_byte_is_an_error() -> None:
    splitter = FrameSplitter(1000)
    with pytest.raises(ProtocolError):
        feed(splitter, struct.pack(">i", 5000), [1])


def test_a_forged_length_allocates_no_memory() -> None:
    splitter = FrameSplitter(100 * 1024 * 1024)
    data = struct.pack(">i", 100 * 1024 * 1024 - 1) + b"x" * 10
    splitter.get_buffer()[: len(data)] = data
    assert list(splitter.received(len(data))) == []
    assert len(splitter.get_buffer()) < 32 * 1024
    assert splitter.pending_bytes == len(data)


def test_a_large_frame_arrives_through_a_growing_buffer() -> None:
    content = bytes(range(256)) * 4000
    splitter = FrameSplitter(2 * 1024 * 1024)
    assert feed(splitter, frame(content) + frame(b"next"), [60_000]) == [content, b"next"]


def test_a_client_reads_responses_of_equal_size_into_one_buffer() -> None:
    buffers = FrameBuffers()
    splitter = FrameSplitter(2 << 20, bytearray(1000), buffers)
    used: set[int] = set()
    for number in range(3):
        splitter.get_buffer()[:1000] = frame(bytes(1 << 20))[:1000]
        assert list(splitter.received(1000)) == []
        with splitter.get_buffer() as into:
            assert len(into) == (1 << 20) + 4 - 1000
            into[-1] = number
            used.add(id(into.obj))
        (content,) = (bytes(each) for each in splitter.received((1 << 20) + 4 - 1000))
        assert content[-1] == number
    assert len(used) == 1
    assert buffers.kept_bytes >= 1 << 20
