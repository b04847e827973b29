"""Diagnosis of a login: mechanisms that are offered and requested."""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import TYPE_CHECKING

from barnabas.cli.common.advice import Advice
from barnabas.client.errors import AuthenticationError
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.headers import decode_response, encode_request
from barnabas.protocol.messages.connection import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.cli.doctor.probe import Address
    from barnabas.client.config import ClientConfig
    from barnabas.client.errors import ClientError

__all__ = ["offered_mechanisms", "report_failed_login"]

_TIMEOUT_S = 1.0
_ANSWER_BYTES_MAX = 1 << 16
_CORRELATION_ID = 0x0B1A_58
# No broker offers it, so that the response lists the mechanisms and no login begins.
_NO_MECHANISM = "NONE"


def offered_mechanisms(address: Address, *, has_tls: bool) -> tuple[str, ...]:
    """Return the SASL mechanisms of a listener; empty if it has no SASL or does not answer.

    The certificate of the peer is not verified: nothing secret is sent.
    """
    chunks = encode_request(
        _CORRELATION_ID, "barnabas-doctor", SaslHandshakeRequest(mechanism=_NO_MECHANISM), 1
    )
    question = b"".join(bytes(c) for c in chunks if isinstance(c, bytes | bytearray | memoryview))
    with contextlib.suppress(OSError, ProtocolError), contextlib.ExitStack() as stack:
        stream = stack.enter_context(socket.create_connection(address, _TIMEOUT_S))
        if has_tls:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            stream = stack.enter_context(context.wrap_socket(stream, server_hostname=address[0]))
        stream.sendall(question)
        size = int.from_bytes(_receive(stream, 4), "big", signed=True)
        if not 4 <= size <= _ANSWER_BYTES_MAX:
            return ()
        answer = memoryview(_receive(stream, size))
        correlation_id, response = decode_response(SaslHandshakeRequest, 1, answer)
        assert isinstance(response, SaslHandshakeResponse)
        is_answer = correlation_id == _CORRELATION_ID
        if is_answer and response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            return tuple(response.mechanisms)
    return ()


def report_failed_login(
    address: Address, config: ClientConfig, error: ClientError, diagnosis: Diagnosis
) -> bool:
    """Report why the client cannot log in. Return whether the login is the reason.

    Args:
        address: A broker that has answered a probe.
        config: Configuration of the client.
        error: The error of its first request.
        diagnosis: Receives the finding.
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


def _receive(stream: socket.socket, size: int) -> bytes:
    """Return `size` bytes. Raises OSError if the peer closes the connection before."""
    received = b""
    while len(received) < size:
        piece = stream.recv(size - len(received))
        if not piece:
            raise OSError("the peer has closed the connection")
        received += piece
    return received
