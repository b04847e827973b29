"""Probe an address: name, port, protocol, and the mechanisms of a login."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from barnabas.cli.common.advice import Advice
from barnabas.client.errors import AuthenticationError
from barnabas.client.tls_config import client_tls_options
from barnabas.network.network_error import ForeignProtocol, foreign_protocol
from barnabas.protocol.codec import decode_response, encode_request
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.messages.connection import (
    ApiVersionsRequest,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from barnabas.runtime.tls.tls_options import TlsOptions, TlsOptionsError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.client.config import ClientConfig
    from barnabas.client.errors import ClientError
    from barnabas.protocol.schema import Message


Address = tuple[str, int]

# Timeout of each step: connect, response, TLS (s).
_TIMEOUT_S = 1.0
# Limit for a probe with all its steps (s). The resolver has no timeout that can be set.
_PROBE_S = 4.2
_RESPONSE_BYTES_MAX = 1 << 20
_CORRELATION_ID = 0x0B1A_57
# Options for a handshake with any peer.
_ANY_TLS = TlsOptions(verify_peer=False)


class Peer(Enum):
    """The kind of peer at an address."""

    KAFKA = "speaks Kafka's protocol"
    TLS = "speaks TLS"
    HTTP = "is a web server"
    SILENT = "accepts the connection and sends nothing"
    CLOSES = "accepts the connection and closes it"
    OTHER = "speaks another protocol"
    REFUSED = "refuses connections"
    UNREACHABLE = "does not answer"
    UNKNOWN_NAME = "has no address"


# Result of the probe of a broker. A listener of brokers or controllers may have TLS or not.
BROKERS = (Peer.KAFKA, Peer.TLS)
_FOREIGN_PEERS = {
    ForeignProtocol.TLS: Peer.TLS,
    ForeignProtocol.HTTP: Peer.HTTP,
    ForeignProtocol.SSH: Peer.OTHER,
}


class Reply(NamedTuple):
    """The result of a probe."""

    peer: Peer
    # The error message of the system, if there is one.
    detail: str = ""


def probe_address(
    host: str, port: int, *, is_thorough: bool = True, tls: TlsOptions | None = None
) -> Reply:
    """Connect and send ApiVersions, a request that every broker answers for all clients.

    With options for TLS, the first attempt is a handshake by these options. A listener with TLS
    would report a request without TLS in its log.

    Args:
        host: Name or IP address.
        port: Port of the listener.
        is_thorough: Whether to identify a peer that stays silent or closes the connection.
        tls: The client's options for TLS; None for a client without TLS.
    """
    if tls is not None and _speaks_tls(host, port, tls):
        return Reply(Peer.TLS)
    try:
        connection = socket.create_connection((host, port), _TIMEOUT_S)
    except socket.gaierror as error:
        return Reply(Peer.UNKNOWN_NAME, error.strerror or "")
    except ConnectionRefusedError:
        return Reply(Peer.REFUSED)
    except OSError as error:
        return Reply(Peer.UNREACHABLE, str(error))
    with connection:
        reply = _ask(connection)
        if reply.peer in (Peer.CLOSES, Peer.SILENT) and is_thorough:
            if tls is None and _speaks_tls(host, port, _ANY_TLS):
                return Reply(Peer.TLS)
            if reply.peer is Peer.SILENT and _speaks_http(host, port):
                return Reply(Peer.HTTP)
        # A broker on a busy machine may have answered in the meantime.
        return _read(connection) if reply.peer is Peer.SILENT else reply


def _request(message: Message, version: int) -> bytes:
    chunks = encode_request(_CORRELATION_ID, "barnabas-doctor", message, version)
    return b"".join(bytes(c) for c in chunks if isinstance(c, bytes | bytearray | memoryview))


def _receive(connection: socket.socket, size: int) -> bytes:
    """Return `size` bytes; fewer if the peer closes the connection before."""
    received = b""
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            break
        received += piece
    return received


def _ask(connection: socket.socket) -> Reply:
    try:
        connection.sendall(_request(ApiVersionsRequest(), 0))
    except OSError as error:
        return Reply(Peer.CLOSES, str(error))
    return _read(connection)


def _read(connection: socket.socket) -> Reply:
    try:
        start = _receive(connection, 4)
        if not start:
            return Reply(Peer.CLOSES)
        foreign = foreign_protocol(start)
        if foreign is not None:
            return Reply(_FOREIGN_PEERS[foreign])
        size = int.from_bytes(start, "big", signed=True)
        if not 4 <= size <= _RESPONSE_BYTES_MAX:
            return Reply(Peer.OTHER)
        response = memoryview(_receive(connection, size))
        if len(response) < size:
            return Reply(Peer.OTHER)
        correlation_id, _ = decode_response(ApiVersionsRequest, 0, response)
    except TimeoutError:
        return Reply(Peer.SILENT)
    except OSError as error:
        return Reply(Peer.CLOSES, str(error))
    except ProtocolError as error:
        return Reply(Peer.OTHER, str(error))
    return Reply(Peer.KAFKA if correlation_id == _CORRELATION_ID else Peer.OTHER)


def tls_of(config: ClientConfig) -> TlsOptions | None:
    """Return the TLS options of a client; None without TLS."""
    return client_tls_options(config) if config.security_protocol.endswith("SSL") else None


def _speaks_tls(host: str, port: int, tls: TlsOptions) -> bool:
    """Return whether a handshake succeeds, with the client's certificate but without its checks."""
    # Imported only for peers that may speak TLS.
    from barnabas.runtime.tls.contexts import client_context

    try:
        context = client_context(msgspec.structs.replace(tls, verify_peer=False)).ssl_context
    except TlsOptionsError:
        # The options are reported elsewhere. Any handshake shows that the peer speaks TLS.
        context = client_context(_ANY_TLS).ssl_context
    with (
        contextlib.suppress(OSError),
        socket.create_connection((host, port), _TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname=host),
    ):
        return True
    return False


def _speaks_http(host: str, port: int) -> bool:
    """Return whether a web server answers. Some need a complete line before they refuse."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), _TIMEOUT_S) as plain:
        plain.sendall(b"HEAD / HTTP/1.0\r\n\r\n")
        return plain.recv(4).startswith(b"HTTP")
    return False


class Probes:
    """Probes several addresses at the same time, each in its own thread.

    The threads are daemons: a name server that does not answer must not keep the process alive.

    Args:
        addresses: The addresses to probe; duplicates are probed once.
        is_thorough: Whether to identify peers that are not brokers, which takes longer.
        tls: The client's options for TLS, if a listener with TLS is wanted, else None.
    """

    def __init__(
        self,
        addresses: Iterable[Address],
        *,
        is_thorough: bool = False,
        tls: TlsOptions | None = None,
    ) -> None:
        self._is_thorough = is_thorough
        self._tls = tls
        # Result of the probe of a usable broker.
        self.wanted = Peer.KAFKA if tls is None else Peer.TLS
        self._replies: dict[Address, Reply] = {}
        self._changed = threading.Condition()
        self.addresses = tuple(dict.fromkeys(addresses))
        for address in self.addresses:
            threading.Thread(target=self._probe, args=(address,), daemon=True).start()

    def _probe(self, address: Address) -> None:
        reply = probe_address(*address, is_thorough=self._is_thorough, tls=self._tls)
        with self._changed:
            self._replies[address] = reply
            self._changed.notify_all()

    def first_kafka(self) -> Address | None:
        """Return the first address at which a broker answers; None if no broker does in time."""
        deadline = time.monotonic() + _PROBE_S
        with self._changed:
            while True:
                for address, reply in self._replies.items():
                    if reply.peer is self.wanted:
                        return address
                left = deadline - time.monotonic()
                if len(self._replies) == len(self.addresses) or left <= 0:
                    return None
                self._changed.wait(left)

    def reply(self, address: Address) -> Reply:
        """Return the result for one address; wait for it if necessary."""
        with self._changed:
            self._changed.wait_for(lambda: address in self._replies, _PROBE_S)
            return self._replies.get(address, Reply(Peer.UNREACHABLE, "no reply in time"))


def responder(host: str, ports: Iterable[int]) -> int | None:
    """Return one of `ports` at which a broker answers; None if no broker does."""
    found = Probes((host, port) for port in ports).first_kafka()
    return None if found is None else found[1]


# No broker offers it, so that the response lists the mechanisms and no login begins.
_NO_MECHANISM = "NONE"


def offered_mechanisms(address: Address, *, has_tls: bool) -> tuple[str, ...]:
    """Return the SASL mechanisms of a listener; empty if it has no SASL or does not answer.

    The certificate of the peer is not verified: nothing secret is sent.
    """
    request = _request(SaslHandshakeRequest(mechanism=_NO_MECHANISM), 1)
    with contextlib.suppress(OSError, ProtocolError), contextlib.ExitStack() as stack:
        stream = stack.enter_context(socket.create_connection(address, _TIMEOUT_S))
        if has_tls:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            stream = stack.enter_context(context.wrap_socket(stream, server_hostname=address[0]))
        stream.sendall(request)
        size = int.from_bytes(_receive(stream, 4), "big", signed=True)
        if not 4 <= size <= _RESPONSE_BYTES_MAX:
            return ()
        received = memoryview(_receive(stream, size))
        correlation_id, response = decode_response(SaslHandshakeRequest, 1, received)
        assert isinstance(response, SaslHandshakeResponse)
        is_response = correlation_id == _CORRELATION_ID
        if is_response and response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            return tuple(response.mechanisms)
    return ()


def report_failed_login(
    address: Address, config: ClientConfig, error: ClientError, diagnosis: Diagnosis
) -> bool:
    """Report why the client cannot log in. Return whether the login is the reason.

    Args:
        address: A broker that has answered a probe.
        error: The error of its first request.
    """
    has_tls = config.security_protocol.endswith("SSL")
    has_sasl = config.security_protocol.startswith("SASL")
    offered = offered_mechanisms(address, has_tls=has_tls)
    listed, name = ", ".join(offered), f"{address[0]}:{address[1]}"
    asked = config.sasl_mechanism
    tls = "SSL" if has_tls else "PLAINTEXT"
    if offered and not has_sasl:
        diagnosis.wrong(
            f"{name} wants a login by {listed}, and the client has "
            f"security.protocol={config.security_protocol}",
            f"give the client security.protocol=SASL_{tls}, sasl.mechanism={offered[0]} and its "
            f"credentials, in a file with --config-file",
        )
    elif offered and asked not in offered:
        diagnosis.wrong(
            f"the client asks {name} for a login by {asked}, and the listener offers {listed}",
            f"set sasl.mechanism={offered[0]}, or add {asked} to sasl.enabled.mechanisms of the "
            f"brokers",
        )
    elif offered and isinstance(error, AuthenticationError):
        diagnosis.wrong(
            f"{name} refuses the login by {asked}, which the listener offers: {error.reason}",
            _remedy(str(asked)),
        )
    elif has_sasl and not offered and isinstance(error, AuthenticationError):
        diagnosis.wrong(
            f"the client asks {name} for a login by {asked}, and the listener has no SASL",
            f"set security.protocol={tls}, or name a listener with SASL",
        )
    else:
        return False
    return True


def _remedy(mechanism: str) -> str:
    if mechanism.startswith("SCRAM"):
        return (
            "correct user name and password; to set a new password: "
            f"{Advice.ADD_USER.text(mechanism=mechanism)}"
        )
    if mechanism == "PLAIN":
        return "correct user name and password: they are in sasl.jaas.config of the brokers"
    return "get a new token; the log of the broker says why it refuses this one"
