"""Logs exceptions of user code that must not stop the client (KIP-42)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["LogUserErrors"]

_log = logging.getLogger(__name__)


class LogUserErrors:
    """A `with` block that logs exceptions of user code and continues after the block.

    Args:
        code: the user's object that is called.
        kind: names the kind of object in the log.
    """

    __slots__ = ("_code", "_kind")

    def __init__(self, code: object, kind: str = "interceptor") -> None:
        self._code = code
        self._kind = kind

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
        _log.error("user code failed: kind=%s object=%r", self._kind, self._code, exc_info=error)
        return True
