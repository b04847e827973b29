"""Create the group membership that the configuration requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.client.config import ClientConfig
    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.connections.coordinators import Coordinators
    from barnabas.client.group.membership import Membership, MembershipHost

__all__ = ["make_membership"]


def make_membership(
    cluster: Cluster, coordinators: Coordinators, config: ClientConfig, host: MembershipHost
) -> Membership:
    """Return a member of `group.id` for the configured `group.protocol`.

    Raises:
        ClientConfigError: The configured assignors do not support a common protocol.
    """
    if config.group_protocol == "consumer":
        from barnabas.client.group.consumer_protocol.consumer_protocol_membership import (
            ConsumerProtocolMembership,
        )

        return ConsumerProtocolMembership(cluster, coordinators, config, host)
    from barnabas.client.group.classic.classic_membership import ClassicMembership

    return ClassicMembership(cluster, coordinators, config, host)
