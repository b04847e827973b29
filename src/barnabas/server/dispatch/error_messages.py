"""Truncation of error messages that are too long for a response.

A message may quote a string of the request that already has the maximum length of a string.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.primitives import STRING_BYTES_MAX
from barnabas.protocol.schema import STRING, Struct

if TYPE_CHECKING:
    from typing import Any

_ENDING = "error_message"
_ELLIPSIS = "..."


def truncate_error_messages(response: Struct) -> bool:
    """Truncate the error messages that are too long, and return whether there were any."""
    found = False
    for each in response.__fields__:
        value = getattr(response, each.name)
        if each.kind is STRING and each.name.endswith(_ENDING):
            if _is_too_long(value):
                setattr(response, each.name, _truncated(value))
                found = True
        elif isinstance(value, list):
            for item in value:
                # Only structs can have error messages.
                if isinstance(item, Struct) and truncate_error_messages(item):
                    found = True
    return found


def _is_too_long(message: Any) -> bool:
    return message is not None and len(message.encode()) > STRING_BYTES_MAX


def _truncated(message: str) -> str:
    beginning = message.encode()[: STRING_BYTES_MAX - len(_ELLIPSIS)]
    return beginning.decode(errors="ignore") + _ELLIPSIS
