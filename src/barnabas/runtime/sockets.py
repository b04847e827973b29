"""The interface to the network: byte streams with callbacks, without framing.

The real implementation is `runtime.loop_sockets`. The simulated one (`sim.network`) splits the
bytes into arbitrary pieces, delays them and drops them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.runtime.clock import Cancellable


_WILDCARD_HOSTS = ("", "0.0.0.0", "::")  # noqa: S104 - only compared


def is_wildcard(host: str) -> bool:
    """Return whether the host stands for all interfaces, so that clients cannot connect to it."""
    return host in _WILDCARD_HOSTS


class Sliceable(Protocol):
    """Bytes that are not in memory yet. A `FileSlice` is sent with sendfile; others are read."""

    def __len__(self) -> int: ...

    def read(self) -> bytes:
        """Return all bytes; fewer than the length if the source was truncated meanwhile."""
        ...


# Data that a stream sends: bytes in memory, or bytes in a file.
Chunk: TypeAlias = bytes | bytearray | memoryview | Sliceable


class Stream(Protocol):
    """The byte stream of one connection."""

    @property
    def peer(self) -> str:
        """Address of the peer, "host:port"."""
        ...

    @property
    def local(self) -> str:
        """Local address, "host:port"."""
        ...

    @property
    def peer_certificate(self) -> bytes | None:
        """The verified certificate of the peer in DER. None without TLS, or if it sent none."""
        ...

    @property
    def buffered_bytes(self) -> int:
        """Number of bytes written here that the kernel has not taken yet."""
        ...

    @property
    def is_closing(self) -> bool:
        """Whether the stream is closed or about to close; writes are then dropped."""
        ...

    @property
    def has_peer_ended(self) -> bool:
        """Whether the peer has stopped sending. This is known even while reading is paused."""
        ...

    def write(self, chunks: Sequence[Chunk]) -> bool:
        """Send in order, with one system call if possible. The chunks must not change afterwards.

        Returns:
            Whether the kernel has taken all bytes written so far. The result is also False when the
            stream is closing and the chunks are dropped.
        """
        ...

    def watch_output(self, on_sent: Callable[[], None]) -> None:
        """Call back each time the kernel has taken some of the buffered bytes.

        The calls end when no bytes are buffered, or when the stream ends. Only the last given
        callback is called.
        """
        ...

    def receive_at_least(self, count: int) -> None:
        """Report received bytes only when this number has arrived, or when the stream ends.

        This saves system calls while `count` bytes of a frame are missing. Fewer bytes may still be
        reported. A number below 2 ends the wait.
        """
        ...

    def pause_reading(self) -> None:
        """Stop receiving until `resume_reading`. The TCP window then slows the peer."""
        ...

    def resume_reading(self) -> None:
        """Start receiving again."""
        ...

    def close(self) -> None:
        """Send the buffered bytes, then close. `on_closed` follows in a later turn."""
        ...

    def abort(self) -> None:
        """Close immediately; buffered bytes are lost."""
        ...


class StreamHandler(Protocol):
    """Receives the events of a stream. All calls come on the loop."""

    def on_connected(self, stream: Stream) -> None:
        """Handle the start of the connection. This is the first call."""
        ...

    def get_buffer(self, size_hint: int) -> memoryview | bytearray:
        """Return the buffer for the next bytes; not empty. `on_received` may not follow."""
        ...

    def on_received(self, count: int) -> None:
        """Handle `count` bytes at the start of the last buffer."""
        ...

    def on_writable_changed(self, writable: bool) -> None:
        """Handle a change of the amount of buffered bytes.

        Args:
            writable: False if too many bytes are buffered, True once most of them are sent.
        """
        ...

    def on_closed(self, error: Exception | None) -> None:
        """Handle the end of the connection, with None after an orderly end.

        This is the last call.
        """
        ...


class Listening(Protocol):
    """An open listener."""

    @property
    def host(self) -> str:
        """The bound address."""
        ...

    @property
    def port(self) -> int:
        """The bound port, never 0."""
        ...

    def close(self) -> None:
        """Stop accepting connections. Accepted streams stay open."""
        ...


class ListenOptions(msgspec.Struct, frozen=True):
    """Socket options of a listener and of the connections that it accepts."""

    # Maximum number of connections that wait to be accepted.
    backlog: int = 1024
    # Buffer sizes of a connection; -1 for the kernel's default.
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    # Time after a response in which the loop polls its sockets without waiting (µs); 0 for none.
    busy_poll_us: int = 0


USUAL_OPTIONS = ListenOptions()


class Sockets(Protocol):
    """The network of a host."""

    def listen(
        self,
        host: str,
        port: int,
        factory: Callable[[], StreamHandler],
        options: ListenOptions = USUAL_OPTIONS,
    ) -> Listening:
        """Bind and listen now. The host "" means all interfaces; port 0 means a free port.

        Raises:
            OSError: the address cannot be bound.
        """
        ...

    def connect(
        self,
        host: str,
        port: int,
        handler: StreamHandler,
        on_failed: Callable[[OSError], None],
        timeout_ms: float,
    ) -> Cancellable:
        """Connect. Either `handler.on_connected` or `on_failed` is called once, later.

        After cancellation neither is called. Cancelling has no effect once connected.
        """
        ...
