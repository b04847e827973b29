"""Calls of functions that may take too long or too much memory, each in a child process.

Such a function is Python or C code that would hold the interpreter's lock, so a thread would delay
the event loop. A call that takes too long costs only its caller an error: the child is killed, and
the next call starts another one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.runtime.offload import ChildOffload
from barnabas.runtime.offload_task import OffloadTask
from barnabas.runtime.system_calls import limit_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.runtime.disk import Disk


class _Call(NamedTuple):
    function: Callable[[Any], object]
    argument: object
    memory: int


class BoundedCalls:
    """Child processes that call functions, each with a limit of time and memory.

    Args:
        loop: The running event loop.
        memory: The limit for the address space of a child (bytes).
        idle_s: How long an idle child is kept (seconds).
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, memory: int, idle_s: float) -> None:
        self._loop = loop
        self._memory = memory
        self._offload = ChildOffload(loop, idle_s)

    def close(self) -> None:
        """End the child processes."""
        self._offload.close()

    async def run(
        self, function: Callable[[Any], object], argument: object, limit_s: float
    ) -> object:
        """Return the result of a call.

        Args:
            function: A function of a module. Its result can be pickled.
            argument: Its argument, which can be pickled.
            limit_s: How long the call may take, the start of a child included (seconds).

        Raises:
            TimeoutError: The call took longer.
            MemoryError: The call needed more memory.
            RecursionError: The call recursed too deeply.
            OffloadError: The child died or could not be started.
            Exception: What the function raises.
        """
        result: asyncio.Future[object] = self._loop.create_future()
        found: list[Any] = []

        def on_done(error: BaseException | None) -> None:
            if result.done():
                return
            if error is None:
                result.set_result(found[0][0])
            else:
                result.set_exception(error)

        task = OffloadTask(_call, _Call(function, argument, self._memory))
        running = self._offload.submit(task, found.append, on_done)
        try:
            async with asyncio.timeout(limit_s):
                return await result
        finally:
            running.cancel()


def _call(_disk: Disk, call: _Call) -> Iterator[object]:
    """Call the function in the child process; yield its result."""
    limit_memory(call.memory)
    # A number alone would be a number of bytes.
    yield (call.function(call.argument),)
