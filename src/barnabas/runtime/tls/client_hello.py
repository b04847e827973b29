"""Checks the first message of a client before OpenSSL gets it (RFC 8446, section 4.1.2).

A server computes a key exchange for a client that has proved nothing. In the larger finite fields
(ffdhe8192) that takes 130 ms, and a client need not compute anything for it. Python's `ssl` cannot
exclude these groups without excluding all but one elliptic curve. Therefore, a client that makes
the server use one is refused here. No usual client does: all offer an elliptic curve first.
"""

from __future__ import annotations

from struct import Struct

from barnabas.runtime.tls.tls_error import HANDSHAKE_FAILURE_ALERT, TlsError

_RECORD_HEADER = Struct(">BHH")
_HANDSHAKE_RECORD = 22
_CLIENT_HELLO = 1
_RECORD_BYTES_MAX = 16 * 1024
# Version and random value of a client's hello.
_FIXED_BYTES = 34
_SUPPORTED_GROUPS = 10
_KEY_SHARE = 51
_FINITE_FIELDS = range(0x0100, 0x0200)
# P-256, P-384, P-521, X25519, X448.
_CURVES = frozenset((23, 24, 25, 29, 30))


class _MalformedHelloError(Exception):
    """A hello that ends too early."""


def is_complete(data: bytes) -> bool:
    """Return whether the first record has arrived.

    The bytes begin with the type of a handshake record.
    """
    if len(data) < _RECORD_HEADER.size:
        return False
    length: int
    _, _, length = _RECORD_HEADER.unpack_from(data)
    return len(data) >= _RECORD_HEADER.size + length or length > _RECORD_BYTES_MAX


def check_client_hello(data: bytes) -> TlsError | None:
    """Return an error unless the first record has a whole hello that is cheap to answer."""
    length: int
    _, _, length = _RECORD_HEADER.unpack_from(data)
    message = data[_RECORD_HEADER.size : _RECORD_HEADER.size + length]
    try:
        groups, shares = _groups(_Reader(message))
    except _MalformedHelloError:
        return _refusal("the first TLS message is malformed, or divided among records")
    if any(group in _FINITE_FIELDS for group in shares):
        return _refusal("the client wants a finite-field key exchange (ffdhe)")
    if groups is not None and _CURVES.isdisjoint(groups):
        return _refusal("the client supports no usual elliptic curve for the key exchange")
    return None


def _refusal(description: str) -> TlsError:
    return TlsError(description, alert=HANDSHAKE_FAILURE_ALERT)


def _groups(reader: _Reader) -> tuple[list[int] | None, list[int]]:
    """Return the supported groups, None if the client names none, and those with a key share."""
    if reader.number(1) != _CLIENT_HELLO:
        raise _MalformedHelloError
    hello = reader.part(3)
    hello.skip(_FIXED_BYTES)
    hello.part(1)
    hello.part(2)
    hello.part(1)
    groups: list[int] | None = None
    shares: list[int] = []
    if hello.is_empty:
        return groups, shares
    extensions = hello.part(2)
    while not extensions.is_empty:
        kind = extensions.number(2)
        content = extensions.part(2)
        if kind == _SUPPORTED_GROUPS:
            listed = content.part(2)
            groups = groups or []
            while not listed.is_empty:
                groups.append(listed.number(2))
        elif kind == _KEY_SHARE:
            listed = content.part(2)
            while not listed.is_empty:
                shares.append(listed.number(2))
                listed.part(2)
    return groups, shares


class _Reader:
    """Reads numbers and parts with a length from bytes."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def is_empty(self) -> bool:
        return self._position >= len(self._data)

    def skip(self, size: int) -> None:
        self._take(size)

    def number(self, size: int) -> int:
        return int.from_bytes(self._take(size))

    def part(self, length_size: int) -> _Reader:
        return _Reader(self._take(self.number(length_size)))

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise _MalformedHelloError
        taken = self._data[self._position : end]
        self._position = end
        return taken
