"""The TLS state of one connection without I/O: encrypted bytes and plain bytes in memory.

OpenSSL keeps a buffer per direction, which grows to the largest amount it held and never shrinks.
Therefore, both directions pass through it in pieces of about one TLS record.

Each call of OpenSSL decrypts one record, and librdkafka sends each small value as a record of its
own. So the loop in `read_into` does little else than these calls.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from barnabas.runtime.tls.tls_error import TlsError, describe_failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.disk import Bytes
    from barnabas.runtime.tls.contexts import TlsContext

# Plain bytes in one TLS record at most.
RECORD_BYTES = 16 * 1024
# Encrypted bytes of a full record of TLS 1.3, so that pieces of a long stream end with a record.
_PIECE_BYTES = RECORD_BYTES + 22
# Bytes that a record of TLS 1.3 adds to its plain bytes: header, content type and tag.
_OVERHEAD_BYTES = 22
# More bytes than any frame has.
_UNKNOWN_BYTES = 1 << 62
# A read without input raises an exception, which takes as long as two small records. Therefore
# OpenSSL is asked after each record whether it has more input, unless a piece may contain many
# small records: that is a piece above this size, while its records are not full.
_FEW_BYTES = 1024
_NOTHING = memoryview(b"")


class TlsSession:
    """Encrypts and decrypts the bytes of one connection."""

    __slots__ = (
        "_decrypt",
        "_held_bytes",
        "_incoming",
        "_outgoing",
        "_ssl",
        "_suites",
        "_unread",
        "error",
        "has_peer_ended",
        "peer_certificate",
    )

    def __init__(self, context: TlsContext, server_hostname: str | None) -> None:
        """Create the session.

        Args:
            context: certificates and options.
            server_hostname: the name that a client connects to; None on the server.
        """
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._suites = context.suites
        self._ssl = context.ssl_context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_hostname is None,
            server_hostname=server_hostname,
        )
        # Decrypts at most one record into a buffer: `(size, buffer)`.
        self._decrypt = cast("Callable[[int, memoryview], int]", self._ssl.read)
        # Received encrypted bytes that OpenSSL has not taken. A view into the buffer that all
        # connections share during a call of the stream, and into a copy after `store_unread`.
        self._unread = _NOTHING
        # Number of encrypted bytes that OpenSSL holds, or more: padding and messages that are not
        # data are never subtracted.
        self._held_bytes = _UNKNOWN_BYTES
        # Whether the peer has announced that it sends no more data.
        self.has_peer_ended = False
        # The verified certificate of the peer in DER; None before the end of the handshake, and if
        # the peer sent none. OpenSSL does not return it after a failure, and requests that arrived
        # before the failure are still served.
        self.peer_certificate: bytes | None = None
        # The failure that ended the session; None while there is none.
        self.error: TlsError | None = None

    @property
    def cipher(self) -> tuple[str, str]:
        """Name of the cipher suite, and protocol version such as "TLSv1.3"."""
        cipher = self._ssl.cipher()
        return (cipher[0] if cipher else "", self._ssl.version() or "")

    @property
    def versions(self) -> str:
        """The versions that this side accepts, for people."""
        context = self._ssl.context
        bounds = (context.minimum_version, context.maximum_version)
        return " and ".join(dict.fromkeys(each.name.replace("_", ".") for each in bounds))

    def step(self) -> bool:
        """Continue the handshake. Return whether it is complete; False if it needs more input.

        This takes milliseconds, mostly without the GIL.

        Raises:
            ssl.SSLError: the handshake failed.
            TlsError: the chosen cipher suite is not allowed.
        """
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            return False
        if not self._suites.allows(self.cipher):
            name, version = self.cipher
            raise TlsError(f"ssl.cipher.suites does not allow {name} ({version}), which was chosen")
        self.peer_certificate = self._ssl.getpeercert(binary_form=True)
        name, version = self.cipher
        if version == "TLSv1.3" and not name.endswith("CCM_8_SHA256"):
            self._held_bytes = self._incoming.pending
        return True

    def receive_for_handshake(self, data: memoryview) -> None:
        """Accept encrypted bytes during the handshake. The view may be reused afterwards."""
        self._held_bytes += self._incoming.write(data)

    def receive(self, data: memoryview) -> None:
        """Accept encrypted bytes after the handshake. The view may be reused after `store_unread`.

        All bytes that were received before must have been read.
        """
        assert not self._unread, f"{len(self._unread)} encrypted bytes were not read"
        self._unread = data

    def store_unread(self) -> None:
        """Copy the received bytes that are not decrypted yet."""
        if self._unread:
            self._unread = memoryview(bytes(self._unread))

    @property
    def has_unread(self) -> bool:
        """Whether there may be received bytes that are not decrypted yet."""
        return bool(self._incoming.pending or self._unread or self._ssl.pending())

    @property
    def held_bytes(self) -> int:
        """Number of received bytes that are not decrypted, or more. Huge if it is unknown."""
        return self._held_bytes + len(self._unread)

    def read_into(self, buffer: memoryview) -> int:
        """Decrypt into the buffer, and return the number of bytes.

        The number is less than the size of the buffer if all received bytes are decrypted.

        At the end of the stream or after a failure, `has_peer_ended` or `error` is set.
        """
        incoming = self._incoming
        read = self._decrypt
        size = len(buffer)
        filled = records = 0
        while filled < size:
            if not incoming.pending and not self._feed() and not self._ssl.pending():
                break
            checked_from = 0 if incoming.pending <= _FEW_BYTES else RECORD_BYTES
            try:
                while filled < size:
                    count = read(size - filled, buffer[filled:])
                    if not count:
                        self.has_peer_ended = True
                        return filled
                    filled += count
                    records += 1
                    if count >= checked_from and not incoming.pending:
                        break
            except ssl.SSLWantReadError:
                if not self._feed():
                    break
            except ssl.SSLError as error:
                self.error = describe_failure(error)
                break
        if filled == size and self._ssl.pending():
            # The rest of the last record is still to be read.
            records -= 1
        self._held_bytes -= filled + records * _OVERHEAD_BYTES
        return filled

    def _feed(self) -> bool:
        """Pass the next piece of the received bytes to OpenSSL. Return False if there is none."""
        unread = self._unread
        if not unread:
            return False
        if len(unread) <= _PIECE_BYTES:
            self._held_bytes += self._incoming.write(unread)
            self._unread = _NOTHING
        else:
            self._held_bytes += self._incoming.write(unread[:_PIECE_BYTES])
            self._unread = unread[_PIECE_BYTES:]
        return True

    def encrypt(self, data: Bytes) -> bytes:
        """Return the encrypted records of the data, at most `RECORD_BYTES` plain bytes.

        Raises:
            TlsError: the session has failed.
        """
        try:
            self._ssl.write(data)
        except ssl.SSLError as error:
            raise describe_failure(error) from None
        return self._outgoing.read()

    def take_output(self) -> bytes:
        """Return the bytes that OpenSSL wants to send: of the handshake, alerts, key updates."""
        return self._outgoing.read() if self._outgoing.pending else b""

    def end(self) -> bytes:
        """Return the encrypted message that announces the end of the data."""
        # Do not wait for the closing message of the peer.
        with suppress(ssl.SSLError):
            self._ssl.unwrap()
        return self._outgoing.read()
