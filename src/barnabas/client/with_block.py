"""What is closed at the end of its `with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["WithBlock"]


class WithBlock(ABC):
    """Base of the blocking faces."""

    @abstractmethod
    def close(self) -> None:
        """End it, whatever happened."""

    def _give_up(self) -> None:
        """The block ended with an exception."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._give_up()
