"""Brings the quotas in force in line with the metadata (Kafka: ClientQuotaMetadataManager)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.metadata.delta import ClusterDelta
    from barnabas.metadata.image import ClusterImage
    from barnabas.server.quotas.client_quotas import ClientQuotas


class QuotaFollower:
    """A listener of the metadata publisher."""

    __slots__ = ("_clients",)

    def __init__(self, clients: ClientQuotas) -> None:
        self._clients = clients

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        """Take new limits; the first image is a delta on an empty one."""
        if delta.client_quota_changes:
            self._clients.on_image(image.client_quotas)
