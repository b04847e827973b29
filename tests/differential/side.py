"""One of the two compared brokers: its connections, and names for its generated ids.

Ids that a broker generates (topic ids, producer ids, fetch sessions, member ids) are stored here
under the name that a case gives them. A request for a side contains its own id, and responses are
compared by the names.
"""

from __future__ import annotations

import copy
import itertools
from typing import TYPE_CHECKING

from barnabas.protocol.codec import decode_response_header, encode_request
from conformance.raw_client import RawClient

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message

Identity = bytes | int | str


class Closed:
    """Outcome: the broker closed the connection instead of responding."""

    def __repr__(self) -> str:
        return "connection closed"


class Silent:
    """Outcome: the request had no response, but the next request had one."""

    def __repr__(self) -> str:
        return "no response"


class TimedOut:
    """Outcome: no response arrived within the timeout."""

    def __repr__(self) -> str:
        return "timed out"


# How long a response is awaited, unless a test sets another time.
RESPONSE_S = 60.0
CLOSED, SILENT, TIMED_OUT = Closed(), Silent(), TimedOut()
Outcome = bytes | Closed | Silent | TimedOut


class Side:
    """A broker, by its address."""

    def __init__(self, name: str, bootstrap: str) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.port = int(bootstrap.rpartition(":")[2])
        # Tests shorten it for requests that get no response.
        self.patience_s = RESPONSE_S
        self._connections: dict[str, RawClient] = {}
        self._numbers = itertools.count(1)
        # Value that this broker assigned -> its name in the case, and back.
        self._names: dict[tuple[type, Identity], str] = {}
        self._values: dict[str, Identity] = {}

    def move(self, bootstrap: str) -> None:
        """Connect to another address, after a restart of the broker."""
        self.close_all()
        self.bootstrap = bootstrap
        self.port = int(bootstrap.rpartition(":")[2])

    def remember(self, name: str, value: Identity) -> None:
        """Give a name to a value of this broker."""
        self._names[type(value), value] = name
        self._values[name] = value

    def forget(self) -> None:
        """Prepare for a new case: forget the names, and close all connections but the first."""
        self._names.clear()
        self._values.clear()
        for key in [key for key in self._connections if key]:
            self._connections.pop(key).close()

    def snapshot(self) -> Side:
        """Return a copy with the current names, for a later comparison of responses."""
        made = copy.copy(self)
        made._names, made._values, made._connections = dict(self._names), dict(self._values), {}
        return made

    def named_values(self) -> dict[str, Identity]:
        """Return all values with a name."""
        return dict(self._values)

    def __getitem__(self, name: str) -> Identity:
        return self._values[name]

    def topic_id(self, topic: str) -> bytes:
        """Return the id of a topic of the case on this broker."""
        found = self._values[f"id of {topic}"]
        assert isinstance(found, bytes)
        return found

    def number(self, name: str) -> int:
        """Return a named id that is a number."""
        found = self._values[name]
        assert isinstance(found, int)
        return found

    def text(self, name: str) -> str:
        """Return a named id that is a string."""
        found = self._values[name]
        assert isinstance(found, str)
        return found

    def name_of(self, value: Identity) -> Identity:
        """Return the name of a value in angle brackets, or the value if it has no name."""
        known = self._names.get((type(value), value))
        return value if known is None else f"<{known}>"

    def send(self, request: Message, version: int, on: str = "") -> bytes:
        """Send a request on a named connection, and return the bytes of the frame."""
        chunks = encode_request(next(self._numbers), "differential", request, version)
        frame = b"".join(bytes(chunk) for chunk in chunks)
        self.send_bytes(frame, on)
        return frame

    def send_bytes(self, data: bytes, on: str = "") -> None:
        """Send raw bytes on a named connection."""
        self._connection(on).send_bytes(data)

    def receive(self, on: str = "") -> Outcome:
        """Return the next response on a named connection, or the outcome without a response."""
        if not self.has_response(self.patience_s, on):
            self.close(on)
            return TIMED_OUT
        frame = self._connection(on).receive_frame()
        if frame is None:
            self.close(on)
            return CLOSED
        return frame

    def has_response(self, timeout_s: float, on: str = "") -> bool:
        """Return whether a response, or the end of the connection, arrives within a time."""
        return self._connection(on).has_bytes(timeout_s)

    def close(self, on: str = "") -> None:
        """Close a named connection; the next use opens a new connection."""
        client = self._connections.pop(on, None)
        if client is not None:
            client.close()

    def close_all(self) -> None:
        """Close all connections."""
        for key in list(self._connections):
            self.close(key)

    def _connection(self, on: str) -> RawClient:
        if on not in self._connections:
            self._connections[on] = RawClient(self.bootstrap, source=self.host_of(on))
        return self._connections[on]

    def host_of(self, on: str) -> str:
        """Return the source address of a named connection; empty for any address."""
        return ""


def body_offset(api_key: int, version: int, frame: bytes) -> int:
    """Return the position of the message in the frame of a response."""
    return decode_response_header(api_key, version, frame)[1]
