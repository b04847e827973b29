"""Contents of a member's heartbeat requests: a full one first, then only changes (KIP-848).

The coordinator remembers the fields that it received. After a request without a response, it is
unknown which fields the coordinator received. The next heartbeat is then a full one, and the
response contains the whole assignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitionsRequest,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.client.config import ClientConfig

__all__ = ["LEAVE_EPOCH", "STATIC_LEAVE_EPOCH", "HeartbeatRequests", "MemberView"]

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
# Epoch with which a static member leaves temporarily: the coordinator keeps its partitions for the
# next member with the same instance id.
STATIC_LEAVE_EPOCH = -2


class MemberView(NamedTuple):
    """The state of a member that the coordinator must know."""

    topics: tuple[str, ...]
    # The pattern that the coordinator matches; None without one.
    regex: str | None
    # Numbers of the owned partitions, by topic id.
    owned: Mapping[bytes, frozenset[int]]


class HeartbeatRequests:
    """Builds a member's requests; remembers the fields that were sent to the coordinator."""

    def __init__(self, config: ClientConfig, member_id: str) -> None:
        assert config.group_id, "a member needs a group"
        self._config = config
        self._group_id = config.group_id
        self.member_id = member_id
        # The state in the last heartbeat; None if the next heartbeat must be a full one.
        self._sent: MemberView | None = None
        # Whether the next heartbeat lists the owned partitions even if they have not changed.
        self._must_list_owned = False

    def forget(self) -> None:
        """Make the next heartbeat a full one."""
        self._sent = None

    def list_owned(self) -> None:
        """List the owned partitions in the next heartbeat, which acknowledges an assignment."""
        self._must_list_owned = True

    def heartbeat(self, epoch: int, view: MemberView) -> ConsumerGroupHeartbeatRequest:
        """Return the next heartbeat, or the request to join (epoch 0), with all changes."""
        if epoch == JOIN_EPOCH:
            assert not view.owned, f"a member joins with {view.owned}"
            self._sent = None
        request = self._minimal_request(epoch)
        sent = self._sent
        if sent is None:
            request.rebalance_timeout_ms = self._config.max_poll_interval_ms
            request.rack_id = self._config.client_rack
            request.server_assignor = self._config.group_remote_assignor
        if sent is None or sent.topics != view.topics:
            request.subscribed_topic_names = list(view.topics)
        if (sent.regex if sent is not None else None) != view.regex:
            # An empty string removes the pattern.
            request.subscribed_topic_regex = view.regex or ""
        if sent is None or sent.owned != view.owned or self._must_list_owned:
            request.topic_partitions = [
                TopicPartitionsRequest(topic_id=topic_id, partitions=sorted(numbers))
                for topic_id, numbers in sorted(view.owned.items())
            ]
        self._sent, self._must_list_owned = view, False
        return request

    def leave(self) -> ConsumerGroupHeartbeatRequest:
        """Return the request to leave: permanently, or temporarily for a static member."""
        self._sent = None
        static = self._config.group_instance_id is not None
        return self._minimal_request(STATIC_LEAVE_EPOCH if static else LEAVE_EPOCH)

    def _minimal_request(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self._config.group_instance_id,
        )
