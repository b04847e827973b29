"""SaslHandshake (key 17, v0-1) and SaslAuthenticate (key 36, v0-2) outside of a login.

`server/security/sasl` serves these requests during a login. Here they arrive on a listener without
SASL, or from a client that is authenticated already. Both are ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.connection import SaslAuthenticateResponse, SaslHandshakeResponse

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import NodeDependencies


def handshake(_: NodeDependencies) -> Handle:
    """Return the handler that refuses a handshake."""
    return _refuse_handshake


def authenticate(_: NodeDependencies) -> Handle:
    """Return the handler that refuses a message of a mechanism."""
    return _refuse_message


def _refuse_handshake(_: RequestContext, __: Message) -> Message:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])


def _refuse_message(_: RequestContext, __: Message) -> Message:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
        auth_bytes=b"",
    )
