"""What is closed at the end of its `async with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["AsyncWithBlock"]


class AsyncWithBlock(ABC):
    """Base of the asyncio faces."""

    @abstractmethod
    async def close(self) -> None:
        """End it, whatever happened."""

    async def _give_up(self) -> None:
        """The block ended with an exception."""
        await self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if error is None:
            await self.close()
        else:
            await self._give_up()
