"""`barnabas.Admin`: all admin calls, blocking, with connections of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.client.admin.admin_client import AdminClient
from barnabas.client.config import ClientConfig
from barnabas.client.session import Session
from barnabas.client.with_block import WithBlock

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Admin"]


class Admin(WithBlock, AdminClient):
    """What administrators do to a cluster. Use it in a `with` block, or call `close()`.

    Args:
        bootstrap_servers: "HOST:PORT,HOST:PORT" or a list of them.
        config: keys of Kafka's clients with "_" for ".".
    """

    def __init__(self, bootstrap_servers: str | Sequence[str], **config: Any) -> None:
        checked = ClientConfig.parse({"bootstrap.servers": bootstrap_servers, **config})
        self._session = Session(checked, "admin client")
        super().__init__(self._session.cluster, self._session.coordinators, self._session.waiter)

    def close(self) -> None:
        """Close all connections."""
        self._session.close()
