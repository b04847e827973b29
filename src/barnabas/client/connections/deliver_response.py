"""Pass a response to its callback, so that the caller always gets a result or an error.

Responses are validated where they are used. This module handles exceptions that the validation has
missed. Without it such an exception would be lost in the event loop, and the call would never end.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from barnabas.client.errors import UnusableResponseError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.errors import ClientError

__all__ = ["deliver_response"]

T = TypeVar("T")
_log = logging.getLogger(__name__)


def deliver_response(
    on_done: Callable[[T | None, ClientError | None], None], result: T, api_name: str, address: str
) -> None:
    """Call `on_done(result, None)`; if that raises, log it and call `on_done` with an error.

    Args:
        on_done: The callback of the caller.
        result: The result.
        api_name: The API of the request, for the error.
        address: The address of the broker that responded.
    """
    try:
        on_done(result, None)
    except Exception as error:  # noqa: BLE001 - passed to on_done
        _log.error("response not usable: api=%s broker=%s", api_name, address, exc_info=error)
        on_done(None, UnusableResponseError(address, api_name, error))
