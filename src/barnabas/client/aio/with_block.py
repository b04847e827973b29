"""Base class of objects that an `async with` block closes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

from barnabas.client.session.bound_to_process import BoundToProcess

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["AsyncWithBlock"]


class AsyncWithBlock(BoundToProcess, ABC):
    """Base of the asyncio client classes."""

    @abstractmethod
    async def close(self) -> None:
        """Close the object and free its resources."""

    async def _give_up(self) -> None:
        """Close the object after the block ended with an exception."""
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
