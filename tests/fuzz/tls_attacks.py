"""Hostile TLS: forged and mutated first messages, invalid records, incomplete handshakes."""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import struct
from collections.abc import Callable

_RECORD = struct.Struct(">BHH")
_HANDSHAKE, _ALERT, _DATA, _CIPHER_CHANGE, _HEARTBEAT = 22, 21, 23, 20, 24
_RECORD_BYTES_MAX = 16 * 1024
# A reset instead of an orderly end.
_RESET = struct.pack("ii", 1, 0)

Attack = Callable[[socket.socket, random.Random], None]


def record(kind: int, body: bytes, version: int = 0x0303) -> bytes:
    """Return a TLS record."""
    return _RECORD.pack(kind, version, len(body) & 0xFFFF) + body


class Peer:
    """A TLS client whose bytes the caller moves, and may damage."""

    def __init__(self, newest: ssl.TLSVersion | None = None) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # This client attacks; the client is arbitrary.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if newest is not None:
            context.maximum_version = newest
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self.is_done = False

    def step(self) -> bytes:
        """Continue the handshake. Return the bytes to send."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._object.do_handshake()
            self.is_done = True
        return self._outgoing.read()

    def receive(self, data: bytes) -> None:
        """Take bytes of the server."""
        self._incoming.write(data)

    def encrypt(self, data: bytes) -> bytes:
        """Return records of application data."""
        self._object.write(data)
        return self._outgoing.read()


def hello(rng: random.Random) -> bytes:
    """Return the first message of a usual client."""
    return Peer(rng.choice([None, ssl.TLSVersion.TLSv1_2])).step()


def random_bytes(end: socket.socket, rng: random.Random) -> None:
    """Send random bytes, sometimes with the start of a record."""
    start = rng.choice([b"", b"\x16", b"\x16\x03\x01", b"\x80\x2e\x01", b"GET / HTTP/1.1\r\n"])
    end.sendall(start + rng.randbytes(rng.choice([1, 5, 50, 5000])))


def mutated_hello(end: socket.socket, rng: random.Random) -> None:
    """Send a first message with changed bytes, mostly in its lengths."""
    data = bytearray(hello(rng))
    for _ in range(rng.choice([1, 1, 2, 8])):
        place = rng.randrange(len(data)) if rng.random() < 0.5 else rng.randrange(3, 60)
        data[place] = rng.choice([0, 0x7F, 0x80, 0xFF, rng.randrange(256)])
    end.sendall(bytes(data))


def cut_hello(end: socket.socket, rng: random.Random) -> None:
    """Send a truncated first message."""
    data = hello(rng)
    end.sendall(data[: rng.randrange(1, len(data))])


def divided_hello(end: socket.socket, rng: random.Random) -> None:
    """Send a first message in many records, some of them empty."""
    body = hello(rng)[_RECORD.size :]
    size = rng.choice([1, 7, 100])
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    if rng.random() < 0.3:
        parts = [b""] * 200 + parts
    end.sendall(b"".join(record(_HANDSHAKE, part, 0x0301) for part in parts))


def slow_hello(end: socket.socket, rng: random.Random) -> None:
    """Send a first message in single bytes."""
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in hello(rng)[: rng.choice([10, 100, 1000])]:
        end.send(bytes([byte]))


def oversized_record(end: socket.socket, rng: random.Random) -> None:
    """Send a record that is longer than TLS allows, or whose length field is."""
    claimed = rng.choice([_RECORD_BYTES_MAX + 1, 0xFFFF])
    header = _RECORD.pack(_HANDSHAKE, 0x0301, claimed)
    end.sendall(header + rng.randbytes(rng.choice([0, 10, claimed])))


def enormous_hello(end: socket.socket, rng: random.Random) -> None:
    """Send a hello whose record is full of one extension, or of thousands of empty ones."""
    data = rng.choice([
        struct.pack(">HH", 21, 15_000) + bytes(15_000),
        b"".join(struct.pack(">HH", 0x1000 + number, 0) for number in range(3_500)),
        struct.pack(">HHH", 10, 14_002, 14_000) + bytes(14_000),
        struct.pack(">HHH", 51, 14_002, 14_000) + bytes(14_000),
        struct.pack(">HHH", 13, 14_002, 14_000) + rng.randbytes(14_000),
    ])  # fmt: skip
    fixed = b"\x03\x03" + rng.randbytes(32) + b"\x00" + b"\x00\x02\x13\x01" + b"\x01\x00"
    body = fixed + struct.pack(">H", len(data)) + data
    end.sendall(record(_HANDSHAKE, b"\x01" + len(body).to_bytes(3) + body, 0x0301))


def handshake_that_stops(end: socket.socket, rng: random.Random) -> None:
    """Send the first message, then nothing, a reset, or an alert."""
    end.sendall(hello(rng))
    what = rng.randrange(4)
    if what == 0:
        end.sendall(record(_ALERT, bytes([rng.choice([1, 2, 9]), rng.randrange(256)])))
    elif what == 1:
        _reset(end)
    elif what == 2:
        end.recv(rng.choice([1, 4096]))
        end.shutdown(socket.SHUT_WR)


def broken_second_flight(end: socket.socket, rng: random.Random) -> None:
    """Respond to the server's messages with unexpected messages."""
    peer = Peer(rng.choice([None, ssl.TLSVersion.TLSv1_2]))
    end.sendall(peer.step())
    peer.receive(end.recv(1 << 16))
    with contextlib.suppress(ssl.SSLError):
        answer = bytearray(peer.step())
        for _ in range(rng.choice([1, 3])):
            if answer:
                answer[rng.randrange(len(answer))] ^= 1 << rng.randrange(8)
        end.sendall(bytes(answer))
    wrong = rng.choice([
        record(_CIPHER_CHANGE, b"\x01") * 500,
        record(_HANDSHAKE, b"\x18\x00\x00\x01\x01"),
        record(_HEARTBEAT, b"\x01\xff\xff"),
        record(_DATA, b""),
        record(99, b"what"),
        hello(rng),
    ])  # fmt: skip
    end.sendall(wrong)


def broken_data(end: socket.socket, rng: random.Random) -> None:
    """Complete the handshake, then send invalid records or half of a record."""
    peer = Peer(rng.choice([None, ssl.TLSVersion.TLSv1_2]))
    end.sendall(peer.step())
    while not peer.is_done:
        data = end.recv(1 << 16)
        if not data:
            return
        peer.receive(data)
        output = peer.step()
        if output:
            end.sendall(output)
    good = peer.encrypt(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")
    what = rng.randrange(6)
    if what == 0:
        end.sendall(record(_DATA, rng.randbytes(rng.choice([0, 16, 16_000]))))
    elif what == 1:
        end.sendall(good[: rng.randrange(1, len(good))])
    elif what == 2:
        end.sendall(good + good)
    elif what == 3:
        end.sendall(b"".join(peer.encrypt(b"x") for _ in range(300)))
    elif what == 4:
        end.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")
    else:
        _reset(end)


def _reset(end: socket.socket) -> None:
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    end.close()


TLS_ATTACKS: list[Attack] = [
    random_bytes,
    mutated_hello,
    mutated_hello,
    cut_hello,
    divided_hello,
    slow_hello,
    oversized_record,
    enormous_hello,
    handshake_that_stops,
    broken_second_flight,
    broken_data,
]
