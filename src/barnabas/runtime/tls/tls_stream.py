"""A stream that encrypts another stream.

A turn of the event loop encrypts a limited amount, and only while the other stream has no buffered
bytes. So a slow peer costs little memory: its responses stay in files and in the queue of plain
chunks. Bytes in files cannot be sent with sendfile; they are read in slices.

An accepted stream reports its connection before the handshake, so that limits of connections also
hold for peers that have not completed it. An outgoing stream reports it after the handshake.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, cast

import msgspec

from barnabas.runtime.disk import FileSlice
from barnabas.runtime.loop_stream import copy_slice
from barnabas.runtime.tls.handshakes import Handshake
from barnabas.runtime.tls.tls_error import TlsError
from barnabas.runtime.tls.tls_session import RECORD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.runtime.clock import Timer
    from barnabas.runtime.disk import Bytes
    from barnabas.runtime.sockets import Chunk, Stream, StreamHandler
    from barnabas.runtime.tls.handshakes import Handshakes
    from barnabas.runtime.tls.tls_session import TlsSession

HIGH_WATER_BYTES = 1024 * 1024
LOW_WATER_BYTES = 256 * 1024
# Plain bytes that are encrypted before the other stream gets them.
_SLICE_BYTES = 256 * 1024
# Plain bytes that one turn of the loop encrypts; 512 KiB take about 0.5 ms.
_TURN_BYTES = 512 * 1024
# Encrypted bytes of one read. While a read fills the buffer, the rest is left to the next turn: a
# buffer full of the smallest records takes several milliseconds.
_RECEIVE_BYTES = 256 * 1024
# Encrypted bytes that a connection may send in one read before its handshake is complete. A
# connection whose handshake is queued holds so many bytes.
_HANDSHAKE_READ_BYTES = 4 * 1024
_IN_MEMORY = (bytes, bytearray, memoryview)


class TlsDependencies(msgspec.Struct, frozen=True):
    """The dependencies that all TLS streams of an event loop share."""

    timer: Timer
    handshakes: Handshakes
    # Receives encrypted bytes, which are decrypted in the same call.
    receive_buffer: memoryview = msgspec.field(
        default_factory=lambda: memoryview(bytearray(_RECEIVE_BYTES))
    )


class TlsStream:
    """One connection with TLS: the handler of an inner stream, and a stream for its handler."""

    __slots__ = (
        "_dependencies",
        "_error",
        "_handler",
        "_handshake",
        "_in_flight_bytes",
        "_inner",
        "_is_collecting",
        "_is_drain_due",
        "_is_end_sent",
        "_is_read_due",
        "_is_reading",
        "_is_reported",
        "_missing_bytes",
        "_on_sent",
        "_queue",
        "_queued_bytes",
        "_session",
        "_wants_input",
        "_wants_reading",
        "_writable",
        "is_closing",
        "local",
        "on_handshaken",
        "peer",
    )

    def __init__(
        self,
        dependencies: TlsDependencies,
        handler: StreamHandler,
        new_session: Callable[[], TlsSession],
        on_handshaken: Callable[[TlsError | None], bool] | None = None,
    ) -> None:
        """Create the stream.

        Args:
            dependencies: what all TLS streams of the loop share.
            handler: receives the events of the connection.
            new_session: called at the start of the handshake.
            on_handshaken: for an outgoing connection: called once with the result of the handshake;
                returns False if the connection is not wanted any more.
        """
        self._dependencies = dependencies
        self._handler = handler
        self.on_handshaken = on_handshaken
        self._inner: Stream | None = None
        # The handshake until it has ended; None after that.
        self._handshake: Handshake | None = Handshake(
            self, dependencies.handshakes, new_session, is_outgoing=on_handshaken is not None
        )
        # Plain bytes that the handler wants before it is called again; 0 for any number. Whether
        # the inner stream waits for several bytes because of that.
        self._missing_bytes = 0
        self._is_collecting = False
        # The session after the handshake; None before.
        self._session: TlsSession | None = None
        # Whether the handler has received `on_connected`.
        self._is_reported = False
        # Plain data that is not encrypted yet, in order, and its size.
        self._queue: deque[Chunk] = deque()
        self._queued_bytes = 0
        # Plain bytes whose records the inner stream has not sent completely; 0 if it has.
        self._in_flight_bytes = 0
        # Whether the next turn continues to encrypt, or to decrypt. Until it decrypts, the inner
        # stream is not read, so that at most one read is stored.
        self._is_drain_due = False
        self._is_read_due = False
        # Whether the message that announces the end of the data was given to the inner stream.
        self._is_end_sent = False
        # Called when some of the buffered bytes were sent; None if there is no callback.
        self._on_sent: Callable[[], None] | None = None
        # The last notification of the handler.
        self._writable = True
        # The inner stream is read while the handler wants to read, and while the handshake wants
        # input. `_is_reading` is the last request to the inner stream.
        self._wants_reading = True
        self._wants_input = True
        self._is_reading = True
        self.is_closing = False
        # Addresses "host:port", which are still known after the end.
        self.peer = ""
        self.local = ""
        self._error: Exception | None = None

    @property
    def peer_certificate(self) -> bytes | None:
        """The verified certificate of the peer in DER; None without one or before the handshake."""
        return None if self._session is None else self._session.peer_certificate

    @property
    def cipher(self) -> tuple[str, str]:
        """Cipher suite and protocol version; empty before the handshake is complete."""
        return ("", "") if self._session is None else self._session.cipher

    @property
    def is_connected(self) -> bool:
        """Whether the inner stream is open, before or after the handshake."""
        return self._inner is not None

    @property
    def buffered_bytes(self) -> int:
        """Number of plain bytes written here that the kernel has not taken yet."""
        if not self._in_flight_bytes or self._inner is None:
            return self._queued_bytes
        return self._queued_bytes + min(self._in_flight_bytes, self._inner.buffered_bytes)

    @property
    def has_peer_ended(self) -> bool:
        """Whether the peer has stopped sending."""
        if self._inner is None or self._inner.has_peer_ended:
            return True
        return self._session is not None and self._session.has_peer_ended

    def write(self, chunks: Sequence[Chunk]) -> bool:
        """Encrypt and send chunks in order; the remaining bytes wait in the queue."""
        if self.is_closing:
            return False
        if not self._queue and not self._in_flight_bytes and self._wrote_at_once(chunks):
            return not self._in_flight_bytes and not self.is_closing
        self._queue.extend(chunks)
        self._queued_bytes += sum(map(len, chunks))
        self._drain()
        self._report_writable()
        return not self.is_closing and not self.buffered_bytes

    def watch_output(self, on_sent: Callable[[], None]) -> None:
        """Call back when some of the buffered bytes were sent, until none are buffered."""
        if self.buffered_bytes:
            self._on_sent = on_sent

    def receive_at_least(self, count: int) -> None:
        """Report received bytes only when this number may have arrived."""
        self._missing_bytes = max(0, count)

    def pause_reading(self) -> None:
        """Stop receiving."""
        if self.is_closing:
            return
        self._wants_reading = False
        if self._handshake is not None:
            self._handshake.stop_expecting()
        self._update_reading()

    def resume_reading(self) -> None:
        """Start receiving again, first the bytes that are already decrypted."""
        if self.is_closing:
            return
        self._wants_reading = True
        if self._handshake is not None:
            self._handshake.expect()
        elif self._session is not None and self._session.has_unread:
            self._read_later()
        self._update_reading()

    def close(self) -> None:
        """Send the queued data, then close."""
        if self.is_closing or self._inner is None:
            return
        self.is_closing = True
        # Received bytes are still read, and dropped: unread ones make the kernel reset the
        # connection at its close, and drop the data that is still to be sent.
        self._wants_reading = True
        self._update_reading()
        self._maybe_finish_close()

    def abort(self) -> None:
        """Close immediately."""
        if self._inner is not None:
            self.is_closing = True
            self._forget_queue()
            self._inner.abort()

    def on_connected(self, stream: Stream) -> None:
        """Begin with the handshake. Called by the inner stream."""
        self._inner = stream
        self.peer, self.local = stream.peer, stream.local
        handshake = self._handshake
        assert handshake is not None
        if self.on_handshaken is not None:
            handshake.begin()
            return
        handshake.expect()
        self._report_connected()

    def get_buffer(self, size_hint: int) -> memoryview:
        """Return the buffer for encrypted bytes. Called by the inner stream."""
        if self._handshake is not None:
            return self._dependencies.receive_buffer[:_HANDSHAKE_READ_BYTES]
        return self._dependencies.receive_buffer

    def on_received(self, count: int) -> None:
        """Decrypt the received bytes. Called by the inner stream."""
        buffer = self._dependencies.receive_buffer
        if self._handshake is not None:
            self._handshake.receive(buffer[:count])
        elif self._session is not None and not self.is_closing:
            self._session.receive(buffer[:count])
            self._read()
            self._session.store_unread()
            if count == len(buffer):
                self._read_later()
                self._update_reading()

    def on_writable_changed(self, writable: bool) -> None:
        """Do nothing: this stream never gives more than a slice to the inner stream."""

    def on_closed(self, error: Exception | None) -> None:
        """End the stream. Called by the inner stream."""
        self.is_closing = True
        self._forget_queue()
        handshake, self._handshake = self._handshake, None
        if handshake is not None:
            handshake.cancel()
            if error is None and self._error is None and self.on_handshaken is not None:
                error = TlsError(
                    "the peer closed the connection during the TLS handshake; its listener may be "
                    "one without TLS",
                    is_disconnect=True,
                )
        self._inner = None
        failure = self._error or error
        if self._is_reported:
            self._handler.on_closed(failure)
        elif self.on_handshaken is not None:
            on_handshaken, self.on_handshaken = self.on_handshaken, None
            if isinstance(failure, TlsError):
                on_handshaken(failure)
            else:
                description = f"the connection broke during the TLS handshake: {failure}"
                on_handshaken(TlsError(description, is_disconnect=True))

    def read_for_handshake(self, wanted: bool) -> None:
        """Start or stop reading for the handshake."""
        self._wants_input = wanted
        self._update_reading()

    def send_for_handshake(self, data: bytes) -> None:
        """Send a message of the handshake."""
        if self._inner is not None:
            self._inner.write([data])

    def on_handshake_done(self, session: TlsSession) -> None:
        """Open the connection."""
        self._handshake = None
        self._session = session
        if self.on_handshaken is not None:
            on_handshaken, self.on_handshaken = self.on_handshaken, None
            if not on_handshaken(None):
                self.abort()
                return
            self._report_connected()
        self._wants_input = True
        if not self.is_closing and session.has_unread:
            self._read_later()
        self._update_reading()
        self._continue_output()

    def on_handshake_failed(self, error: TlsError) -> None:
        """Close the connection after the alert of the handshake is sent."""
        self._handshake = None
        self._error = error
        self.is_closing = True
        inner = self._inner
        if inner is None:
            return
        if error.alert:
            inner.write([error.alert])
        if inner.buffered_bytes:
            inner.abort()
        else:
            inner.close()

    def _report_connected(self) -> None:
        self._is_reported = True
        self._handler.on_connected(self)

    def _update_reading(self) -> None:
        inner = self._inner
        wanted = self._wants_reading and self._wants_input and not self._is_read_due
        if inner is None or wanted == self._is_reading:
            return
        self._is_reading = wanted
        if wanted:
            inner.resume_reading()
        else:
            inner.pause_reading()

    def _read_later(self) -> None:
        if not self._is_read_due:
            self._is_read_due = True
            self._dependencies.timer.call_soon(self._read_stored)

    def _read_stored(self) -> None:
        self._is_read_due = False
        if self._inner is not None and not self.is_closing:
            self._read()
        self._update_reading()

    def _read(self) -> None:
        """Decrypt received bytes and pass them to the handler until it pauses."""
        session = self._session
        assert session is not None
        while self._wants_reading and not self.is_closing:
            buffer = memoryview(self._handler.get_buffer(-1))
            count = session.read_into(buffer)
            size = len(buffer)
            buffer.release()
            if count:
                self._handler.on_received(count)
            if count < size or self._inner is None:
                break
        if self._inner is None:
            return
        # Key updates of the peer are answered.
        output = session.take_output()
        if output and not self._inner.is_closing:
            self._inner.write([output])
        if self._missing_bytes or self._is_collecting:
            # Encryption only adds bytes, so the missing ones are at least as many.
            encrypted_bytes = max(0, self._missing_bytes - session.held_bytes)
            self._is_collecting = encrypted_bytes > 0
            self._inner.receive_at_least(encrypted_bytes)
        if session.error is not None:
            self._fail(session.error)
        elif session.has_peer_ended:
            self.close()

    def _wrote_at_once(self, chunks: Sequence[Chunk]) -> bool:
        """Send chunks that fit into one record without the queue; False if that is not possible."""
        session = self._session
        if session is None or self._inner is None:
            return False
        size = 0
        for chunk in chunks:
            if not isinstance(chunk, _IN_MEMORY):
                return False
            size += len(chunk)
        if not 0 < size <= RECORD_BYTES:
            return False
        try:
            self._send([session.encrypt(b"".join(cast("Sequence[Bytes]", chunks)))], size)
        except OSError as error:
            self._fail(error)
        return True

    def _send(self, records: list[bytes], size: int) -> bool:
        """Send the records of `size` plain bytes. Return whether the inner stream took them all."""
        inner = self._inner
        assert inner is not None
        if inner.write(records):
            return True
        self._in_flight_bytes = size
        if not inner.is_closing:
            inner.watch_output(self._on_inner_sent)
        return False

    def _drain(self) -> None:
        """Encrypt and send queued data until the inner stream is full or the turn is used up."""
        session = self._session
        if session is None or self._inner is None or self._in_flight_bytes or self._is_drain_due:
            return
        budget = _TURN_BYTES
        try:
            while self._queue and budget > 0:
                records, size = self._encrypt_slice(session)
                self._queued_bytes -= size
                budget -= size
                if not self._send(records, size):
                    return
        except OSError as error:
            self._fail(error)
            return
        if self._queue:
            self._is_drain_due = True
            self._dependencies.timer.call_soon(self._continue_drain)

    def _encrypt_slice(self, session: TlsSession) -> tuple[list[bytes], int]:
        """Return the records of the next queued bytes, and the number of these bytes."""
        records: list[bytes] = []
        size = 0
        while self._queue and size < _SLICE_BYTES:
            plain = self._take_record()
            if plain:
                records.append(session.encrypt(plain))
                size += len(plain)
        return records, size

    def _take_record(self) -> Bytes:
        """Take the plain bytes of one record from the queue. Small chunks share a record."""
        queue = self._queue
        parts: list[Bytes] = []
        room = RECORD_BYTES
        while queue and room:
            head = queue[0]
            if not isinstance(head, _IN_MEMORY):
                self._load_head()
                continue
            queue.popleft()
            if len(head) > room:
                view = memoryview(head)
                head = view[:room]
                queue.appendleft(view[room:])
            parts.append(head)
            room -= len(head)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _load_head(self) -> None:
        """Read the start of the first chunk, which is in a file.

        Raises:
            TruncatedSliceError: the file was truncated.
        """
        head = self._queue.popleft()
        if isinstance(head, FileSlice) and head.length > _SLICE_BYTES:
            rest = FileSlice(head.file, head.position + _SLICE_BYTES, head.length - _SLICE_BYTES)
            self._queue.appendleft(rest)
            head = FileSlice(head.file, head.position, _SLICE_BYTES)
        assert not isinstance(head, _IN_MEMORY)
        self._queue.appendleft(memoryview(copy_slice(head)))

    def _on_inner_sent(self) -> None:
        if self._inner is None:
            return
        if not self._inner.buffered_bytes:
            self._in_flight_bytes = 0
        self._continue_output()

    def _continue_drain(self) -> None:
        self._is_drain_due = False
        self._continue_output()

    def _continue_output(self) -> None:
        """Send more after some bytes were sent, and report the progress."""
        self._drain()
        self._report_writable()
        on_sent = self._on_sent
        if on_sent is not None:
            if not self.buffered_bytes:
                self._on_sent = None
            on_sent()
        self._maybe_finish_close()

    def _maybe_finish_close(self) -> None:
        """Close the inner stream of a closing stream when all data is sent."""
        inner = self._inner
        if not self.is_closing or inner is None or inner.is_closing:
            return
        if self._session is None:
            inner.close()
        elif not self._queue and not self._in_flight_bytes:
            if not self._is_end_sent:
                self._is_end_sent = True
                inner.write([self._session.end()])
            if not inner.buffered_bytes:
                inner.close()
            elif not inner.is_closing:
                inner.watch_output(self._on_inner_sent)

    def _report_writable(self) -> None:
        if not self._is_reported:
            return
        if self._writable:
            if self.buffered_bytes > HIGH_WATER_BYTES:
                self._writable = False
                self._handler.on_writable_changed(False)
        elif self.buffered_bytes <= LOW_WATER_BYTES:
            self._writable = True
            if not self.is_closing:
                self._handler.on_writable_changed(True)

    def _fail(self, error: Exception) -> None:
        self._error = error
        self.abort()

    def _forget_queue(self) -> None:
        self._queue.clear()
        self._queued_bytes = 0
        self._in_flight_bytes = 0
        self._on_sent = None
