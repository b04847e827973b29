"""Connections of a node to the active controller, which follow changes of the controller.

Heartbeats have a separate connection, so that other requests cannot delay them. When this
connection closes, the controller knows that the process of the node has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.server.controller_access.controller_channel import ChannelSettings
from barnabas.server.controller_access.forwarding import Forwarding

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.raft.listener import CommittedBatch, LeaderAndEpoch, LoadedSnapshot
    from barnabas.server.controller_access.forwarding import ForwardingDependencies
    from barnabas.settings.definition import ParsedConfig


class ControllerChannels:
    """Connects to the active controller. Listens to the raft driver for leader changes."""

    def __init__(
        self,
        node_id: int,
        config: ParsedConfig,
        dependencies: ForwardingDependencies,
        on_heartbeats_lost: Callable[[], None],
    ) -> None:
        """Args:
        node_id: id of this node, for the client ids of the connections.
        config: the configuration of this node, for the timeouts.
        dependencies: dependencies of both connections.
        on_heartbeats_lost: called when an established heartbeat connection is lost.
        """
        name = f"barnabas-{node_id}"
        requests_ms = config.integer("controller.socket.timeout.ms")
        heartbeats_ms = config.integer("broker.session.timeout.ms") / 2
        self.requests = Forwarding(dependencies, ChannelSettings(f"{name}-requests", requests_ms))
        self.heartbeats = Forwarding(
            dependencies, ChannelSettings(f"{name}-heartbeats", heartbeats_ms), on_heartbeats_lost
        )

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Ignore committed records."""

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Ignore snapshots."""

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Connect to the new active controller."""
        self.requests.on_leader_change()
        self.heartbeats.on_leader_change()

    def close(self) -> None:
        """Disconnect. Pending requests get a timeout error."""
        self.requests.close()
        self.heartbeats.close()
