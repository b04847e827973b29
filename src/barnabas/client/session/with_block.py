"""Base class of objects that are closed at the end of a `with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

from barnabas.client.session.bound_to_process import BoundToProcess

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["WithBlock"]


class WithBlock(BoundToProcess, ABC):
    """Base class of the blocking clients."""

    @abstractmethod
    def close(self) -> None:
        """Close the object; the end of the block calls this."""

    def _give_up(self) -> None:
        """Close the object after an exception in the block."""
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
