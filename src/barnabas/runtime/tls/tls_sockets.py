"""Sockets with TLS over any other sockets."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from barnabas.runtime.sockets import USUAL_OPTIONS
from barnabas.runtime.tls.tls_error import TlsError
from barnabas.runtime.tls.tls_session import TlsSession
from barnabas.runtime.tls.tls_stream import TlsStream

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.clock import Cancellable
    from barnabas.runtime.sockets import (
        Listening,
        ListenOptions,
        Sockets,
        StreamHandler,
    )
    from barnabas.runtime.tls.contexts import TlsContext
    from barnabas.runtime.tls.tls_stream import TlsDependencies


class TlsSockets:
    """Listeners and outgoing connections with TLS."""

    def __init__(
        self,
        inner: Sockets,
        dependencies: TlsDependencies,
        server_context: Callable[[], TlsContext],
        client_context: Callable[[], TlsContext],
    ) -> None:
        """Store the parts.

        Args:
            inner: the sockets that carry the encrypted bytes.
            dependencies: what all TLS streams of the loop share.
            server_context: returns the current certificates and options of accepted connections.
            client_context: returns those of outgoing connections.
        """
        self._inner = inner
        self._dependencies = dependencies
        self._server_context = server_context
        self._client_context = client_context

    def listen(
        self,
        host: str,
        port: int,
        factory: Callable[[], StreamHandler],
        options: ListenOptions = USUAL_OPTIONS,
    ) -> Listening:
        """Bind and listen now. Each handler receives `on_connected` before the handshake."""

        def accept() -> TlsStream:
            return TlsStream(self._dependencies, factory(), self._new_server_session)

        return self._inner.listen(host, port, accept, options)

    def connect(
        self,
        host: str,
        port: int,
        handler: StreamHandler,
        on_failed: Callable[[OSError], None],
        timeout_ms: float,
    ) -> Cancellable:
        """Connect and complete the handshake, or fail after `timeout_ms`.

        The certificate of the peer must be valid for `host`, unless the client context has no check
        of host names.
        """
        attempt = _TlsAttempt(self._dependencies, on_failed)

        def new_session() -> TlsSession:
            return TlsSession(self._client_context(), host)

        stream = TlsStream(self._dependencies, handler, new_session, attempt.on_handshaken)
        attempt.start(self._inner, host, port, stream, timeout_ms)
        return attempt

    def _new_server_session(self) -> TlsSession:
        return TlsSession(self._server_context(), None)


class _TlsAttempt:
    """An outgoing connection until its handshake is complete, or it has failed."""

    __slots__ = ("_connecting", "_deadline", "_dependencies", "_on_failed", "_settled", "_stream")

    def __init__(self, dependencies: TlsDependencies, on_failed: Callable[[OSError], None]) -> None:
        self._dependencies = dependencies
        self._on_failed = on_failed
        # True once connected, failed or cancelled; later events are ignored.
        self._settled = False
        self._connecting: Cancellable | None = None
        self._deadline: Cancellable | None = None
        self._stream: TlsStream | None = None

    def start(
        self, inner: Sockets, host: str, port: int, stream: TlsStream, timeout_ms: float
    ) -> None:
        """Connect the inner stream. The time limit includes the handshake."""
        self._stream = stream
        self._deadline = self._dependencies.timer.call_later(timeout_ms, self._on_timed_out)
        self._connecting = inner.connect(host, port, stream, self._fail, timeout_ms)

    def cancel(self) -> None:
        """Stop the attempt without calling the handler or `on_failed`."""
        if not self._settled:
            self._settle()
            self._abort()

    def on_handshaken(self, error: TlsError | None) -> bool:
        """Handle the result of the handshake. Return whether the connection is still wanted."""
        if self._settled:
            return False
        if error is not None:
            self._fail(error)
            return False
        self._settle()
        return True

    def _on_timed_out(self) -> None:
        if not self._settled:
            is_connected = self._stream is not None and self._stream.is_connected
            self._fail(
                TlsError("the TLS handshake timed out")
                if is_connected
                else TimeoutError(errno.ETIMEDOUT, "connection attempt timed out")
            )
            self._abort()

    def _fail(self, error: OSError) -> None:
        if not self._settled:
            self._settle()
            self._on_failed(error)

    def _abort(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        if self._stream is not None:
            self._stream.abort()

    def _settle(self) -> None:
        self._settled = True
        if self._deadline is not None:
            self._deadline.cancel()
