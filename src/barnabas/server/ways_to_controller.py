"""The connections of one node to the active controller, and what makes them follow it.

Heartbeats have one of their own: nothing makes them wait, and its end tells the controller that
the node is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.server.controller_channel import ChannelSettings
from barnabas.server.forwarding import Forwarding, ForwardingParts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.raft.listener import CommittedBatch, LeaderAndEpoch, LoadedSnapshot
    from barnabas.server.local_controller import LocalController
    from barnabas.server.shared_server import SharedServer


class WaysToController:
    """A listener of the raft driver."""

    def __init__(
        self,
        shared: SharedServer,
        local: LocalController | None,
        on_heartbeats_lost: Callable[[], None],
    ) -> None:
        """Args:
        local: this process's controller, if it has one.
        on_heartbeats_lost: told when the connection for heartbeats, which stood, is gone.
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
        """Nothing to do."""

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Nothing to do."""

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:  # noqa: ARG002 - it is asked for
        """Go where the active controller is now."""
        self.requests.on_leader_change()
        self.heartbeats.on_leader_change()

    def close(self) -> None:
        """Disconnect; what waits is answered with a time-out."""
        self.requests.close()
        self.heartbeats.close()
