"""The asyncio face of the client: `barnabas.aio.Producer` and its like, on the running loop."""

from __future__ import annotations

from barnabas.client.aio.admin import Admin
from barnabas.client.aio.producer import Producer

__all__ = ["Admin", "Producer"]
