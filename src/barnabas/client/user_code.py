"""Calls of the user's code, whose exceptions are logged (KIP-42) or kept for the next poll."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["LogUserErrors", "UserCode"]

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


class UserCode:
    """A context manager that stores an exception of its block in `error` and suppresses it.

    Exceptions that are not an `Exception`, such as KeyboardInterrupt, are not suppressed.
    """

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        """Clear `error`."""
        self.error = None
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> bool:
        """Store and suppress an `Exception`."""
        if isinstance(error, Exception):
            self.error = error
            return True
        return False
