"""The few requests with which the fixtures create topics, users and rights.

The pytest plugin has to run in environments without Barnabas's dependencies (docs/testing.md), so
this module uses the standard library only and not `barnabas.client`. The versions of its requests
are the same in all brokers since Apache Kafka 2.7.
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

__all__ = ["AdminEndpoint", "AdminRequestError", "AdminRequests", "Grant"]

# Limits for a broker that does not respond; long enough for a busy machine.
_TIMEOUT_S = 90.0
_PAUSE_S = 0.002

_CREATE_TOPICS, _METADATA, _CREATE_ACLS = (19, 4), (3, 4), (30, 1)
_DESCRIBE_SCRAM, _ALTER_SCRAM = (50, 0), (51, 0)
# Requests with compact lengths and tagged fields.
_FLEXIBLE = (_DESCRIBE_SCRAM, _ALTER_SCRAM)

_HEADER = Struct(">ihhi")
_INT8, _INT16, _INT32 = Struct(">b"), Struct(">h"), Struct(">i")
_CLIENT_ID = "pytest-barnabas"
_NO_TAGS = b"\x00"

_SCRAM_SHA_512 = 2
_ITERATIONS = 4096
_ANY_HOST = "*"
_ALLOW = 3
# Kafka's numbers of resource types, pattern types and operations in ACLs.
TOPIC, GROUP, TRANSACTIONAL_ID = 2, 3, 5
_LITERAL, _PREFIXED = 3, 4
READ, WRITE, CREATE, DESCRIBE = 3, 4, 5, 8

# Names of the errors that a test is likely to cause.
_ERRORS = {
    17: "INVALID_TOPIC_EXCEPTION",
    36: "TOPIC_ALREADY_EXISTS",
    37: "INVALID_PARTITIONS",
    38: "INVALID_REPLICATION_FACTOR",
    40: "INVALID_CONFIG",
    44: "POLICY_VIOLATION",
    54: "SECURITY_DISABLED",
}


class AdminRequestError(RuntimeError):
    """The broker refused a request.

    Args:
        subject: what was to be changed, such as `topic orders`.
        code: Kafka's error code.
        message: the broker's message, or None.
    """

    def __init__(self, subject: str, code: int, message: str | None) -> None:
        name = _ERRORS.get(code, f"error {code}")
        super().__init__(f"{subject}: {name}" + (f": {message}" if message else ""))
        self.code = code


@dataclass(frozen=True)
class AdminEndpoint:
    """A listener that permits administration."""

    host: str
    port: int
    # TLS with a client certificate; None for a connection without TLS.
    tls: ssl.SSLContext | None = None


@dataclass(frozen=True)
class Grant:
    """A right of a user: an operation on a resource.

    A name that ends with `*` means all names with this prefix.
    """

    resource_type: int
    name: str
    operation: int

    def encoded(self, user: str) -> bytes:
        """Return the entry of a CreateAcls request."""
        is_prefix = self.name.endswith("*") and self.name != "*"
        name, pattern = (self.name[:-1], _PREFIXED) if is_prefix else (self.name, _LITERAL)
        return (
            _INT8.pack(self.resource_type) + _string(name) + _INT8.pack(pattern)
            + _string(f"User:{user}") + _string(_ANY_HOST)
            + _INT8.pack(self.operation) + _INT8.pack(_ALLOW)
        )  # fmt: skip


class AdminRequests:
    """A connection to one broker; use a `with` block.

    Raises:
        OSError: the broker does not accept the connection, or it closes the connection.
    """

    def __init__(self, endpoint: AdminEndpoint) -> None:
        self._socket = socket.create_connection((endpoint.host, endpoint.port), _TIMEOUT_S)
        self._correlation_id = 0
        if endpoint.tls is not None:
            self._socket = endpoint.tls.wrap_socket(self._socket, server_hostname=endpoint.host)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def create_topics(
        self,
        names: Sequence[str],
        partitions: int = 1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create topics with the same options; all partitions have leaders when this returns.

        Raises:
            AdminRequestError: the broker refused a topic.
            TimeoutError: a partition has no leader after 90 seconds.
        """
        options = _INT32.pack(partitions) + _INT16.pack(replication_factor) + _array(())
        options += _array(_string(key) + _string(value) for key, value in (configs or {}).items())
        body = _array(_string(name) + options for name in names)
        response = self._send(_CREATE_TOPICS, body + _INT32.pack(int(_TIMEOUT_S * 1000)) + b"\x00")
        response.skip(4)
        for _ in range(response.int32()):
            name = response.string()
            response.check(f"topic {name}")
        self._await_leaders(names, partitions)

    def create_acls(self, user: str, grants: Sequence[Grant]) -> None:
        """Give rights to a user.

        Raises:
            AdminRequestError: the broker refused one of them.
        """
        response = self._send(_CREATE_ACLS, _array(grant.encoded(user) for grant in grants))
        response.skip(4)
        for _ in range(response.int32()):
            response.check(f"rights of {user}")

    def set_password(self, user: str, password: str) -> None:
        """Create a user for SCRAM-SHA-512, or change the user's password.

        Raises:
            AdminRequestError: the broker refused it.
        """
        salt = os.urandom(16)
        salted = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS)
        entry = _compact(user.encode()) + _INT8.pack(_SCRAM_SHA_512) + _INT32.pack(_ITERATIONS)
        entry += _compact(salt) + _compact(salted) + _NO_TAGS
        no_deletions = _varint(1)
        response = self._send(_ALTER_SCRAM, no_deletions + _varint(2) + entry + _NO_TAGS)
        response.skip(4)
        assert response.varint() == 2, "one result is expected"
        response.compact()
        response.check(f"user {user}", is_compact=True)

    def await_user(self, user: str) -> None:
        """Wait until this broker knows the user's password, and so all rights given before.

        Raises:
            TimeoutError: the broker does not know the password after 90 seconds.
        """
        body = _varint(2) + _compact(user.encode()) + _NO_TAGS + _NO_TAGS
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            response = self._send(_DESCRIBE_SCRAM, body)
            response.skip(4)
            response.check("users", is_compact=True)
            assert response.varint() == 2, "one result is expected"
            response.compact()
            if response.int16() == 0:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"the broker does not know the user {user}")
            time.sleep(_PAUSE_S)

    def _await_leaders(self, names: Sequence[str], partitions: int) -> None:
        body = _array(map(_string, names)) + b"\x00"
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            led = _led_partitions(self._send(_METADATA, body))
            missing = [name for name in names if led.get(name) != partitions]
            if not missing:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"topics have partitions without a leader: {missing}")
            time.sleep(_PAUSE_S)

    def _send(self, api: tuple[int, int], body: bytes) -> _Response:
        """Send a request of this API key and version; return the body of the response."""
        self._correlation_id += 1
        is_flexible = api in _FLEXIBLE
        rest = _string(_CLIENT_ID) + (_NO_TAGS if is_flexible else b"") + body
        size = _HEADER.size - _INT32.size + len(rest)
        self._socket.sendall(_HEADER.pack(size, *api, self._correlation_id) + rest)
        (length,) = _INT32.unpack(self._read(_INT32.size))
        response = _Response(self._read(length))
        assert response.int32() == self._correlation_id, "a response to another request"
        if is_flexible:
            response.skip(len(_NO_TAGS))
        return response

    def _read(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            piece = self._socket.recv(size - len(received))
            if not piece:
                raise ConnectionResetError("the broker closed the connection")
            received += piece
        return bytes(received)


class _Response:
    """The bytes of a response, and the position of the next field."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def skip(self, count: int) -> None:
        self._position += count

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def string(self) -> str | None:
        length = self.int16()
        return None if length < 0 else self._take(length).decode()

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def compact(self) -> str | None:
        length = self.varint() - 1
        return None if length < 0 else self._take(length).decode()

    def check(self, subject: str, *, is_compact: bool = False) -> None:
        """Read an error code and a message.

        Raises:
            AdminRequestError: the code is not 0.
        """
        code = self.int16()
        message = self.compact() if is_compact else self.string()
        if code != 0:
            raise AdminRequestError(subject, code, message)

    def _number(self, layout: Struct) -> int:
        (value,) = layout.unpack(self._take(layout.size))
        return int(value)

    def _take(self, count: int) -> bytes:
        start = self._position
        self._position += count
        assert self._position <= len(self._data), "the response is too short"
        return self._data[start : self._position]


def _led_partitions(response: _Response) -> dict[str | None, int]:
    """Return the number of partitions with a leader, by topic, from a Metadata response."""
    response.skip(4)
    for _ in range(response.int32()):
        response.int32(), response.string(), response.int32(), response.string()
    response.string()
    response.int32()
    led: dict[str | None, int] = {}
    for _ in range(response.int32()):
        response.int16()
        name = response.string()
        response.skip(1)
        count = 0
        for _ in range(response.int32()):
            error, _, leader = response.int16(), response.int32(), response.int32()
            for _ in ("replicas", "in-sync replicas"):
                response.skip(4 * response.int32())
            count += error == 0 and leader >= 0
        led[name] = count
    return led


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _array(entries: Iterable[bytes]) -> bytes:
    parts = list(entries)
    return _INT32.pack(len(parts)) + b"".join(parts)


def _compact(data: bytes) -> bytes:
    return _varint(len(data) + 1) + data


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
