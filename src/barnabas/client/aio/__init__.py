"""The asyncio face of the client: the same core as the blocking one, over the running loop."""

from __future__ import annotations
