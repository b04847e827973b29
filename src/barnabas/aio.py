"""The asyncio API of the client: admin, consumers and producers on the running loop."""

from __future__ import annotations

from barnabas.client.aio.admin import Admin
from barnabas.client.aio.consumer import Consumer
from barnabas.client.aio.producer import Producer
from barnabas.client.aio.share_consumer import ShareConsumer

__all__ = ["Admin", "Consumer", "Producer", "ShareConsumer"]
