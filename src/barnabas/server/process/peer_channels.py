"""Channels of a broker to the leaders of the partitions that it follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.replication.fetcher.leader_channels import LeaderChannels
    from barnabas.server.cluster.lost_leaders import LostLeaders
    from barnabas.server.process.shared_server import SharedServer


def make_peer_channels(shared: SharedServer, lost_leaders: LostLeaders) -> LeaderChannels | None:
    """Return the channels to other brokers; None in a cluster of one node.

    Args:
        shared: the components that all roles of the node share.
        lost_leaders: told when the connection to a broker is lost.
    """
    if shared.configuration.is_single:
        return None
    # Imported only in clusters with other nodes.
    from barnabas.replication.fetcher.leader_channels import PeerChannels

    listener = shared.configuration.inter_broker_listener
    assert listener is not None

    def endpoint_of(broker_id: int) -> tuple[str, int] | None:
        found = shared.cluster.endpoint(broker_id, listener)
        return None if found is None else (found.host, found.port)

    return PeerChannels(shared.channels_to(listener), endpoint_of, lost_leaders.on_connection_lost)
