"""Connections that send frames as fast as possible, and reconnect when they are closed."""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import time
from collections import deque
from dataclasses import dataclass, field

from barnabas.protocol.codec import encode_request
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fuzz import mutations
from fuzz.grammar import DELICATE, Grammar

CONNECTIONS = 6
FRAMES_PER_REFILL = 40
DAMAGED_SHARE = 0.08
# Share of the refills that begin with a Fetch which waits, and the times that it waits (ms). The
# frames behind it are deferred, and the client may be gone before their turn comes.
WAITING_SHARE = 0.2
WAITS_MS = (20, 200, 2_000, 60_000)
HALF_CLOSED_MAX = 8
# A connection without traffic for this time is replaced, because a response may be pending forever,
# for example that to a JoinGroup.
STALL_SECONDS = 0.5


@dataclass
class Tally:
    """Counts of sent frames and responses."""

    frames: int = 0
    damaged: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    connections: int = 0
    closed_by_broker: int = 0
    stalled: int = 0
    by_api: dict[int, int] = field(default_factory=dict)


class _Connection:
    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, 10)
        self.socket.setblocking(False)
        self.output = b""
        # Number of frames in the send buffer. They count as sent once the buffer is empty.
        self.frames = 0
        self.moved = time.monotonic()


class Attacker:
    """Sends until the limit of frames or time."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._address = (host, int(port))
        self._rng = random.Random(seed)
        self._grammar = Grammar(self._rng)
        self._selector = selectors.DefaultSelector()
        # Connections on which nothing more is sent, oldest first.
        self._half_closed: deque[socket.socket] = deque()
        self.tally = Tally()

    def run(self, seconds: float, frames: int | None = None) -> Tally:
        """Attack for this time, or until this number of frames is sent."""
        deadline = time.monotonic() + seconds
        connections = [self._connect() for _ in range(CONNECTIONS)]
        while time.monotonic() < deadline and (frames is None or self.tally.frames < frames):
            ready = self._selector.select(0.05)
            for key, events in ready:
                connection: _Connection = key.data
                if not self._serve(connection, events):
                    self._replace(connections, connection)
            now = time.monotonic()
            for connection in list(connections):
                if now - connection.moved > STALL_SECONDS:
                    self.tally.stalled += 1
                    self._replace(connections, connection)
        for connection in connections:
            self._selector.unregister(connection.socket)
            connection.socket.close()
        while self._half_closed:
            self._half_closed.popleft().close()
        return self.tally

    def _connect(self) -> _Connection:
        connection = _Connection(self._address)
        self._selector.register(
            connection.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, connection
        )
        self.tally.connections += 1
        return connection

    def _replace(self, connections: list[_Connection], old: _Connection) -> None:
        self._selector.unregister(old.socket)
        end = self._rng.random()
        with contextlib.suppress(OSError):
            if end < 0.4:
                # Reset the connection, as after the end of a process.
                old.socket.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00"
                )
            elif end < 0.6:
                # Send no more, but leave the connection open for responses.
                old.socket.shutdown(socket.SHUT_WR)
                self._half_closed.append(old.socket)
        if len(self._half_closed) > HALF_CLOSED_MAX:
            self._half_closed.popleft().close()
        if old.socket not in self._half_closed:
            old.socket.close()
        connections.remove(old)
        connections.append(self._connect())

    def _serve(self, connection: _Connection, events: int) -> bool:
        """Send and receive bytes. Return False if the connection is closed."""
        try:
            if events & selectors.EVENT_READ:
                received = connection.socket.recv(1 << 16)
                if not received:
                    self.tally.closed_by_broker += 1
                    return False
                self.tally.bytes_received += len(received)
                connection.moved = time.monotonic()
            if events & selectors.EVENT_WRITE:
                if not connection.output:
                    self.tally.frames += connection.frames
                    connection.output, connection.frames = self._refill()
                sent = connection.socket.send(connection.output)
                connection.output = connection.output[sent:]
                self.tally.bytes_sent += sent
                connection.moved = time.monotonic()
        except BlockingIOError:
            return True
        except OSError:
            self.tally.closed_by_broker += 1
            return False
        return True

    def _refill(self) -> tuple[bytes, int]:
        """Return frames to send. A damaged frame is last, because later ones may not be read."""
        rng, tally = self._rng, self.tally
        frames = []
        if rng.random() < WAITING_SHARE:
            frames.append(waiting_fetch(rng.choice(WAITS_MS)))
        for _ in range(FRAMES_PER_REFILL):
            api, frame = self._grammar.frame()
            tally.by_api[api] = tally.by_api.get(api, 0) + 1
            if rng.random() < DAMAGED_SHARE:
                tally.damaged += 1
                damage = rng.choice(mutations.CUTTING if api in DELICATE else mutations.ALL)
                frames.append(damage(frame, rng))
                break
            frames.append(frame)
        return b"".join(frames), len(frames)


def waiting_fetch(max_wait_ms: int) -> bytes:
    """Return a frame with a Fetch that waits for more bytes than there are."""
    partition = FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=1 << 20, current_leader_epoch=-1
    )
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=0x7FFFFFFF,
        max_bytes=0x7FFFFFFF,
        topics=[FetchTopic(topic="t", partitions=[partition])],
        forgotten_topics_data=[],
    )
    return b"".join(map(bytes, encode_request(1, "waiting", request, 12)))
