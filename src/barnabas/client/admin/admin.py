"""`barnabas.Admin`: the blocking admin client with its own connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.client.admin.admin_client import AdminClient
from barnabas.client.config import ClientConfig, keys_with_servers
from barnabas.client.session.lifetime import ClosedByUser, WithBlock
from barnabas.client.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Admin"]


class Admin(ClosedByUser, WithBlock, AdminClient):
    """Administrative operations on a cluster. Use it in a `with` block, or call `close()`.

    Args:
        bootstrap_servers: "HOST:PORT,HOST:PORT" or a list of such strings.
        config: Kafka's client settings with "_" for ".".

    Raises:
        ClientConfigError: a setting is unknown or has an invalid value.
    """

    def __init__(self, bootstrap_servers: str | Sequence[str] | None = None, **config: Any) -> None:
        checked = ClientConfig.parse(keys_with_servers(bootstrap_servers, config))
        self._session = Session(checked, "admin client")
        super().__init__(self._session.cluster, self._session.coordinators, self._session.waiter)
        self._watch(self._session.lifetime)

    def close(self) -> None:
        """Close all connections; a second call does nothing."""
        self._session.close()

    def _close_at_exit(self, timeout: float) -> None:
        self.close()
