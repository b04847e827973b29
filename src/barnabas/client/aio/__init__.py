"""The asyncio API of the client: the same core as the blocking API, on the running event loop."""

from __future__ import annotations
