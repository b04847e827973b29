"""Sockets of clients that close a connection as Apache Kafka's Java clients do it.

Our client resets a connection after a request timeout, so that the simulated broker discards bytes
that it has not read. A Java client closes its socket: the kernel still delivers the bytes. A batch
can therefore arrive after its transaction was aborted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.loop import Runtime
    from barnabas.runtime.sockets import Sockets, Stream, StreamHandler


def lingering(runtime: Runtime) -> Runtime:
    """Return the runtime with sockets that deliver sent bytes after an abort."""
    return msgspec.structs.replace(runtime, sockets=_LingeringSockets(runtime.sockets))


class _LingeringSockets:
    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets

    def connect(
        self,
        host: str,
        port: int,
        handler: StreamHandler,
        on_failed: Callable[[OSError], None],
        timeout_ms: float,
    ) -> Any:
        return self._sockets.connect(host, port, _Handler(handler), on_failed, timeout_ms)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sockets, name)


class _Handler:
    """A handler whose stream does not reset the connection."""

    def __init__(self, handler: StreamHandler) -> None:
        self._handler = handler

    def on_connected(self, stream: Stream) -> None:
        self._handler.on_connected(_LingeringStream(stream))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handler, name)


class _LingeringStream:
    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def abort(self) -> None:
        self._stream.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
