"""Connections of a node to the active controller, which follow changes of the controller.

Heartbeats have a separate connection. Other requests cannot delay them, and the end of the
connection tells the controller that the node is dead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.server.controller_access.controller_channel import ChannelSettings
from barnabas.server.controller_access.forwarding import Forwarding, ForwardingParts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.raft.listener import CommittedBatch, LeaderAndEpoch, LoadedSnapshot
    from barnabas.server.controller_access.local_controller import LocalController
    from barnabas.server.process.shared_server import SharedServer


class WaysToController:
    """Connects to the active controller. Listens to the raft driver for leader changes."""

    def __init__(
        self,
        shared: SharedServer,
        local: LocalController | None,
        on_heartbeats_lost: Callable[[], None],
    ) -> None:
        """Args:
        shared: the shared parts of the node.
        local: the controller of this process, or None.
        on_heartbeats_lost: called when an established heartbeat connection is lost.
        """
        config = shared.config
        name = f"barnabas-{shared.node_id}"
        self.requests = Forwarding(
            ForwardingParts(
                shared.channel_doors,
                shared.runtime.rng,
                ChannelSettings(f"{name}-requests", config.integer("controller.socket.timeout.ms")),
                shared.find_controller,
                local,
            )
        )
        self.heartbeats = Forwarding(
            ForwardingParts(
                shared.channel_doors,
                shared.runtime.rng,
                ChannelSettings(
                    f"{name}-heartbeats", config.integer("broker.session.timeout.ms") / 2
                ),
                shared.find_controller,
                local,
            ),
            on_heartbeats_lost,
        )

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Ignore committed records."""

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Ignore snapshots."""

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:  # noqa: ARG002 - `find_controller` is called instead
        """Connect to the new active controller."""
        self.requests.on_leader_change()
        self.heartbeats.on_leader_change()

    def close(self) -> None:
        """Disconnect. Pending requests get a timeout error."""
        self.requests.close()
        self.heartbeats.close()
