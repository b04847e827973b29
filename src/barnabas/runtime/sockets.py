"""The door to the network: byte streams with callbacks, and nothing of framing.

The real one is `runtime.loop_sockets`; the simulated one (`sim.network`) cuts the bytes into
arbitrary pieces, delays and drops them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from barnabas.runtime.disk import Bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.runtime.timer import Cancellable


class Sliceable(Protocol):
    """Bytes that are not in memory yet; a `FileSlice` is sent by sendfile, others are read."""

    def __len__(self) -> int: ...

    def read(self) -> bytes:
        """All of it; shorter than its length when the source was cut meanwhile."""
        ...


# What a stream sends: bytes in memory, or bytes still in a file.
Chunk: TypeAlias = bytes | bytearray | memoryview | Sliceable
__all__ = [
    "USUAL_OPTIONS",
    "Bytes",
    "Chunk",
    "ListenOptions",
    "Listening",
    "Sliceable",
    "Sockets",
    "Stream",
    "StreamHandler",
]


class Stream(Protocol):
    """One connection's bytes."""

    @property
    def peer(self) -> str:
        """The other end, "host:port"."""
        ...

    @property
    def local(self) -> str:
        """This end, "host:port"."""
        ...

    @property
    def buffered_bytes(self) -> int:
        """Written here and not yet taken by the kernel."""
        ...

    @property
    def is_closing(self) -> bool:
        """Whether it is closed or about to be; writes are then dropped."""
        ...

    @property
    def has_peer_ended(self) -> bool:
        """Whether the peer will send no more; known also while reading is paused."""
        ...

    def write(self, chunks: Sequence[Chunk]) -> bool:
        """Send in order, one system call where it can. The chunks must not change afterwards.

        Returns:
            Whether the kernel has taken all that was written so far. It is False also when the
            stream is closing, and the chunks are dropped.
        """
        ...

    def watch_output(self, on_sent: Callable[[], None]) -> None:
        """Call back each time when the kernel has taken some of what is buffered.

        The calls end when nothing is buffered any more, or when the stream ends. There is one
        callback at a time: the last one that was given.
        """
        ...

    def pause_reading(self) -> None:
        """Receive nothing until `resume_reading`; the peer feels it through its window."""
        ...

    def resume_reading(self) -> None:
        """Receive again."""
        ...

    def close(self) -> None:
        """Send what is buffered, then close. `on_closed` follows in a later turn."""
        ...

    def abort(self) -> None:
        """Close now; what is buffered is lost."""
        ...


class StreamHandler(Protocol):
    """Who is told about a stream. All calls come on the loop."""

    def on_connected(self, stream: Stream) -> None:
        """The first call."""
        ...

    def get_buffer(self, size_hint: int) -> memoryview | bytearray:
        """Where to put the next bytes; not empty. `on_received` may not follow."""
        ...

    def on_received(self, count: int) -> None:
        """`count` bytes were put at the start of the last buffer."""
        ...

    def on_writable_changed(self, writable: bool) -> None:
        """False when too much is buffered, True when most of it has gone."""
        ...

    def on_closed(self, error: Exception | None) -> None:
        """The last call; None after an orderly end."""
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
        """Accept no more; accepted streams live on."""
        ...


class ListenOptions(msgspec.Struct, frozen=True):
    """What the kernel is told about a listener and the connections that it accepts."""

    # Connections that wait to be accepted.
    backlog: int = 1024
    # Buffers of a connection; -1 leaves them to the kernel.
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1


USUAL_OPTIONS = ListenOptions()


class Sockets(Protocol):
    """A host's network."""

    def listen(
        self,
        host: str,
        port: int,
        factory: Callable[[], StreamHandler],
        options: ListenOptions = USUAL_OPTIONS,
    ) -> Listening:
        """Bind at once and accept from now on; "" is every interface, port 0 a free one.

        Raises:
            OSError: when the address cannot be bound.
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
        """Connect; `handler.on_connected` or `on_failed` is called later, one of them, once.

        Cancelling calls neither; it does nothing once connected.
        """
        ...
