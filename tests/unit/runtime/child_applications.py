"""Applications that child processes run in tests."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any


@contextlib.asynccontextmanager
async def answering(greeting: str) -> AsyncIterator[Any]:
    """An application that answers by its path."""

    async def serve(scope: Any, _receive: Any, send: Any) -> None:
        path = scope["path"]
        if path == "/die":
            os._exit(3)
        if path == "/fail":
            raise ValueError("a page has a fault")
        if path == "/stop":
            # The event loop of the child runs no more.
            os.kill(os.getpid(), 19)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})
        if path == "/wait":
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
            await asyncio.get_running_loop().create_future()
        words = [greeting, scope["session"], scope["query_string"].decode(), str(os.getpid())]
        body = b"x" * 3_000_000 if path == "/large" else " ".join(words).encode()
        await send({"type": "http.response.body", "body": body, "more_body": False})

    yield serve
