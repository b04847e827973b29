"""Run code of the user inside a call from the event loop, and keep the exception that it raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["UserCode"]


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
