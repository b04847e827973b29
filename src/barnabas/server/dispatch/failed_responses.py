"""Responses that cannot be encoded: shorter error messages, or the end of the connection."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.primitives import STRING_BYTES_MAX
from barnabas.protocol.schema import STRING, Struct

if TYPE_CHECKING:
    from barnabas.network.connection import Connection

_log = logging.getLogger(__name__)

_ELLIPSIS = "..."


def give_up(connection: Connection, error: Exception, api: str, version: int) -> None:
    """Close a connection after a response could not be encoded, and log the error.

    Responses must keep the order of the requests, so no later response could be sent.
    """
    if isinstance(error, ProtocolError):
        # The response contains a value that this version of the API cannot represent.
        _log.warning(
            "Response cannot be encoded, connection closed: api=%s version=%d client=%s error=%s",
            api,
            version,
            connection.peer,
            error,
        )
    else:
        _log.error(
            "Response failed, connection closed: api=%s version=%d client=%s",
            api,
            version,
            connection.peer,
            exc_info=error,
        )
    connection.abort()


def truncate_error_messages(response: Struct) -> bool:
    """Truncate the error messages that are too long, and return whether there were any.

    A message may quote a string of the request that already has the maximum length of a string.
    """
    is_any_too_long = False
    for field in response.__fields__:
        value = getattr(response, field.name)
        if field.kind is STRING and field.name.endswith("error_message"):
            if value is not None and len(value.encode()) > STRING_BYTES_MAX:
                beginning = value.encode()[: STRING_BYTES_MAX - len(_ELLIPSIS)]
                setattr(response, field.name, beginning.decode(errors="ignore") + _ELLIPSIS)
                is_any_too_long = True
        elif isinstance(value, list):
            for item in value:
                # Only structs can have error messages.
                if isinstance(item, Struct) and truncate_error_messages(item):
                    is_any_too_long = True
    return is_any_too_long
