"""Requests that wait for the longest time of the protocol, on connections that close at once.

The broker must keep nothing of them: neither timers nor connections.
"""

from __future__ import annotations

import contextlib
import socket
import struct

from barnabas.protocol.codec import decode_response, encode_request
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.share_consumers import ShareFetchRequest, ShareFetchResponse

ENDLESS_MS = (1 << 31) - 1
_SHARE_VERSION, _FETCH_VERSION = 2, 12
_TIMEOUT_S = 60.0
# Refused sessions on each connection.
_REQUESTS = 100
# Default of group.share.max.share.sessions.
SESSIONS = 2_000


def share_fetch(member: int, max_wait_ms: int) -> bytes:
    """Return the first request of a share session without partitions."""
    request = ShareFetchRequest(
        group_id="endless",
        member_id=f"member {member}",
        share_session_epoch=0,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1,
        max_records=1,
        batch_size=1,
        topics=[],
        forgotten_topics_data=[],
    )
    return _frame(request, _SHARE_VERSION)


def fetch(topic: str, max_wait_ms: int) -> bytes:
    """Return a fetch that waits for more bytes than a topic gets."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 30)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1 << 30,
        max_bytes=1 << 30,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
        forgotten_topics_data=[],
    )
    return _frame(request, _FETCH_VERSION)


def leave(bootstrap: str, connections: int, sessions: int = SESSIONS, topic: str = "t") -> int:
    """Use up the share sessions, then leave waiting requests behind on many connections.

    Args:
        bootstrap: HOST:PORT of the broker.
        connections: number of connections that close while their requests wait.
        sessions: the broker's limit of share sessions.
        topic: a topic for fetches.

    Returns:
        The error code of the first session above the limit.
    """
    host, _, port = bootstrap.rpartition(":")
    address = (host, int(port))
    with socket.create_connection(address, _TIMEOUT_S) as member:
        errors = _errors(member, [share_fetch(each, 0) for each in range(sessions + 1)])
        refused = share_fetch(sessions + 1, ENDLESS_MS)
        waiting = refused * _REQUESTS + fetch(topic, ENDLESS_MS)
        for _ in range(connections):
            with contextlib.suppress(OSError), socket.create_connection(address, _TIMEOUT_S) as one:
                one.sendall(waiting)
    return errors[-1]


def _errors(connection: socket.socket, frames: list[bytes]) -> list[int]:
    """Send the frames one after the other, and return the error of each response."""
    stream = connection.makefile("rb")
    errors = []
    for frame in frames:
        connection.sendall(frame)
        (size,) = struct.unpack(">i", stream.read(4))
        _, response = decode_response(
            ShareFetchRequest, _SHARE_VERSION, memoryview(bytearray(stream.read(size)))
        )
        assert isinstance(response, ShareFetchResponse)
        errors.append(response.error_code)
    return errors


def _frame(message: ShareFetchRequest | FetchRequest, version: int) -> bytes:
    return b"".join(map(bytes, encode_request(1, "endless", message, version)))  # type: ignore[arg-type]
