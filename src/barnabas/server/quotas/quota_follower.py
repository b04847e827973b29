"""Application of quotas from the metadata (Kafka: ClientQuotaMetadataManager)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.metadata.image import ClusterDelta, ClusterImage
    from barnabas.server.quotas.client_quotas import ClientQuotas
    from barnabas.server.quotas.connection_quotas import ConnectionQuotas


class QuotaFollower:
    """Passes quotas to their users. Listens to the metadata publisher."""

    __slots__ = ("_clients", "_connections")

    def __init__(self, clients: ClientQuotas, connections: ConnectionQuotas) -> None:
        self._clients = clients
        self._connections = connections

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        """Apply changed limits. The first image comes with a delta from an empty image."""
        if delta.client_quota_changes:
            self._clients.on_image(image.client_quotas)
            self._connections.on_image(image.client_quotas)
