"""One of the two compared brokers: its connections, and names for its generated ids.

Ids that a broker generates (topic ids, producer ids, fetch sessions, member ids) are stored here
under the name that a case gives them. A request for a side contains its own id, and responses are
compared by the names.
"""

from __future__ import annotations

import copy
import itertools
from typing import TYPE_CHECKING

from barnabas.protocol.headers import decode_response_header, encode_request
from conformance.raw_client import RawClient

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message

Identity = bytes | int | str


class Closed:
    """The outcome that the broker closed the connection instead of responding."""

    def __repr__(self) -> str:
        return "connection closed"


class Silent:
    """The outcome that the request had no response, but the next one had."""

    def __repr__(self) -> str:
        return "no answer"


class TimedOut:
    """The outcome that no response came within the timeout."""

    def __repr__(self) -> str:
        return "nothing came in time"


CLOSED, SILENT, TIMED_OUT = Closed(), Silent(), TimedOut()
Outcome = bytes | Closed | Silent | TimedOut


class Side:
    """A broker, by its address."""

    def __init__(self, name: str, bootstrap: str) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.port = int(bootstrap.rpartition(":")[2])
        self._connections: dict[str, RawClient] = {}
        self._numbers = itertools.count(1)
        # Value that this broker assigned -> its name in the case, and back.
        self._names: dict[tuple[type, Identity], str] = {}
        self._values: dict[str, Identity] = {}

    def move(self, bootstrap: str) -> None:
        """The broker has started again, at another address."""
        self.close_all()
        self.bootstrap = bootstrap
        self.port = int(bootstrap.rpartition(":")[2])

    def remember(self, name: str, value: Identity) -> None:
        """From now on the case speaks of `value` as `name`."""
        self._names[type(value), value] = name
        self._values[name] = value

    def forget(self) -> None:
        """A new case begins: no names, no connections but the first."""
        self._names.clear()
        self._values.clear()
        for key in [key for key in self._connections if key]:
            self._connections.pop(key).close()

    def as_it_is_now(self) -> Side:
        """With the names of this moment, for answers that are looked at later."""
        made = copy.copy(self)
        made._names, made._values, made._connections = dict(self._names), dict(self._values), {}
        return made

    def drawn(self) -> dict[str, Identity]:
        """All that has a name now."""
        return dict(self._values)

    def __getitem__(self, name: str) -> Identity:
        return self._values[name]

    def topic_id(self, topic: str) -> bytes:
        """The id that this broker gave to a topic of the case."""
        found = self._values[f"id of {topic}"]
        assert isinstance(found, bytes)
        return found

    def number(self, name: str) -> int:
        """An id that is a number."""
        found = self._values[name]
        assert isinstance(found, int)
        return found

    def text(self, name: str) -> str:
        """An id that is a string."""
        found = self._values[name]
        assert isinstance(found, str)
        return found

    def name_of(self, value: Identity) -> Identity:
        """The value that the case calls `value`; itself when the case has no name for it."""
        known = self._names.get((type(value), value))
        return value if known is None else f"<{known}>"

    def send(self, request: Message, version: int, on: str = "") -> bytes:
        """Send a request on the connection of that name; returns the whole frame's bytes."""
        chunks = encode_request(next(self._numbers), "differential", request, version)
        frame = b"".join(bytes(chunk) for chunk in chunks)
        self.send_bytes(frame, on)
        return frame

    def send_bytes(self, data: bytes, on: str = "") -> None:
        """Send anything."""
        self._connection(on).send_bytes(data)

    def receive(self, on: str = "") -> Outcome:
        """The next response on that connection, or the event instead."""
        try:
            frame = self._connection(on).receive_frame()
        except TimeoutError:
            self.close(on)
            return TIMED_OUT
        if frame is None:
            self.close(on)
            return CLOSED
        return frame

    def has_answer(self, timeout_s: float, on: str = "") -> bool:
        """Whether an answer, or the connection's end, came within that time."""
        return self._connection(on).has_bytes(timeout_s)

    def close(self, on: str = "") -> None:
        """Close that connection; the next use opens another."""
        client = self._connections.pop(on, None)
        if client is not None:
            client.close()

    def close_all(self) -> None:
        """The session ends."""
        for key in list(self._connections):
            self.close(key)

    def _connection(self, on: str) -> RawClient:
        if on not in self._connections:
            self._connections[on] = RawClient(self.bootstrap, source=self.host_of(on))
        return self._connections[on]

    def host_of(self, on: str) -> str:
        """The address that a connection comes from; any when empty."""
        return ""


def body_offset(api_key: int, version: int, frame: bytes) -> int:
    """Where the message begins in an answer's frame."""
    return decode_response_header(api_key, version, frame)[1]
