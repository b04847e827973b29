"""`barnabas.aio.Admin`: all admin calls on the running asyncio loop.

Each method is the coroutine form of the method of the same name in the blocking `Admin`, which
documents arguments, results and errors.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.client.admin.admin import AdminCalls
from barnabas.client.admin.sender import AdminSender, Pause
from barnabas.client.aio.session import AsyncClosedByUser, AsyncSession, AsyncWithBlock
from barnabas.client.config import ClientConfig, keys_with_servers
from barnabas.client.session.plans import AwaitsPlans, run_plan_async

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.client.admin.sender import Plan, Step

__all__ = ["Admin"]

T = TypeVar("T")
_MS_PER_S = 1000


class Admin(AdminCalls, AwaitsPlans, AsyncWithBlock, AsyncClosedByUser):
    """Administrate a cluster. Use it in an `async with` block, or await `close()`.

    Args:
        bootstrap_servers: "HOST:PORT,HOST:PORT" or a list of "HOST:PORT" strings.
        config: As for the blocking `barnabas.Admin`.
    """

    def __init__(self, bootstrap_servers: str | Sequence[str] | None = None, **config: Any) -> None:
        checked = ClientConfig.parse(keys_with_servers(bootstrap_servers, config))
        self._session = AsyncSession(checked, "admin client", self._on_end_of_loop)
        self._sender = AdminSender(self._session.cluster, self._session.coordinators)
        self._watch(self._session.lifetime)

    async def _end(self, timeout: float) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def _run_plan(self, plan: Callable[..., Plan[T]], *args: Any, **kwargs: Any) -> T:
        self._session.check_usable()
        return await run_plan_async(plan(self._sender, *args, **kwargs), self._perform)

    async def _perform(self, step: Step) -> Any:
        if isinstance(step, Pause):
            await asyncio.sleep(step.delay_ms / _MS_PER_S)
            return None
        return await self._session.wait_all(step)
