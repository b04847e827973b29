"""What stands around a call of a user's interceptor, of either client (KIP-42)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Shielded"]

_log = logging.getLogger(__name__)


class Shielded:
    """Logs what an interceptor raises, and goes on."""

    __slots__ = ("_interceptor",)

    def __init__(self, interceptor: object) -> None:
        self._interceptor = interceptor

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> bool:
        if kind is None or not issubclass(kind, Exception):
            return False
        _log.error("interceptor %r failed", self._interceptor, exc_info=error)
        return True
