"""A raw socket for requests that real clients never send: broken frames, odd versions, bad CRCs."""

from __future__ import annotations

import select
import socket
import ssl
import struct
from typing import TYPE_CHECKING

from barnabas.protocol.codec import decode_response, encode_request

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message

_TIMEOUT_S = 60.0


class RawClient:
    """One connection, with a limit for every wait."""

    def __init__(
        self,
        bootstrap: str,
        context: ssl.SSLContext | None = None,
        source: str = "",
        client_id: str = "raw",
    ) -> None:
        """Connect from the local address `source`, if set, and with TLS, if there is a context."""
        host, _, port = bootstrap.rpartition(":")
        source_address = (source, 0) if source else None
        self._socket = socket.create_connection((host, int(port)), _TIMEOUT_S, source_address)
        # Otherwise a second request waits for the TCP acknowledgement of the first.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            self._socket = context.wrap_socket(self._socket, server_hostname=host)
        self._correlation_id = 0
        self._client_id = client_id

    @property
    def tls_version(self) -> str | None:
        """The TLS version of the connection; None without TLS."""
        return self._socket.version() if isinstance(self._socket, ssl.SSLSocket) else None

    def close(self) -> None:
        self._socket.close()

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send_frame(self, body: bytes) -> None:
        self.send_bytes(struct.pack(">i", len(body)) + body)

    def receive_frame(self) -> bytes | None:
        """Return the next frame without its length; None if the connection is closed."""
        length = self._receive(4)
        if length is None:
            return None
        return self._receive(struct.unpack(">i", length)[0])

    def has_bytes(self, timeout_s: float) -> bool:
        """Return whether bytes arrived within this time, without reading them."""
        return bool(select.select([self._socket], [], [], timeout_s)[0])

    def is_closed_by_broker(self) -> bool:
        """Wait for the end of the connection; return False if bytes arrive instead."""
        return self.receive_frame() is None

    def send(self, request: Message, version: int) -> None:
        self._correlation_id += 1
        chunks = encode_request(self._correlation_id, self._client_id, request, version)
        self.send_bytes(b"".join(bytes(chunk) for chunk in chunks))

    def receive(self, request_class: type[Message], version: int) -> Message:
        frame = self.receive_frame()
        assert frame is not None, "the broker closed the connection"
        _, response = decode_response(request_class, version, frame)
        return response

    def ask(self, request: Message, version: int) -> Message:
        """Send a request and return the response."""
        self.send(request, version)
        return self.receive(type(request), version)

    def _receive(self, size: int) -> bytes | None:
        received = b""
        while len(received) < size:
            try:
                piece = self._socket.recv(size - len(received))
            except ConnectionResetError:
                return None
            if not piece:
                return None
            received += piece
        return received
