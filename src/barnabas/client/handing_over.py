"""Giving a response to the code that asked for it, so that no caller waits for ever.

Brokers' answers are checked where they are used. This is for what those checks have missed: an
exception there would be lost in the loop, and the caller would never hear of its request again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from barnabas.client.errors import UnusableResponseError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.errors import ClientError

__all__ = ["hand_over"]

T = TypeVar("T")
_log = logging.getLogger(__name__)


def hand_over(
    on_done: Callable[[T | None, ClientError | None], None], result: T, api_name: str, address: str
) -> None:
    """Call `on_done(result, None)`; if that raises, log it and call `on_done` with an error.

    Args:
        on_done: the caller's.
        result: what it asked for.
        api_name: of the request, for the error.
        address: of the broker that answered.
    """
    try:
        on_done(result, None)
    except Exception as error:  # noqa: BLE001 - handed over to on_done, nothing is lost
        _log.error("response not usable: api=%s broker=%s", api_name, address, exc_info=error)
        on_done(None, UnusableResponseError(address, api_name, error))
