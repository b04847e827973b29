"""Code of the user's that is run within a call from the loop: what it raises is kept for him."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["UserCode"]


class UserCode:
    """Ends the block at an exception, which is then in `error`.

    What is not an `Exception` (Ctrl-C) goes on its way.
    """

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        """Nothing was raised yet."""
        self.error = None
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> bool:
        """Keep it."""
        if isinstance(error, Exception):
            self.error = error
            return True
        return False
