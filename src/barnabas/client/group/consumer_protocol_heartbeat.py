"""What a member's heartbeats say: all of it first, then only what changed (KIP-848).

The coordinator keeps what it was told. After an answer that did not come nobody knows whether it
was told, so the next heartbeat says all again, and is answered with the whole assignment.
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
# A static member goes away for a while: its partitions are kept for who has its instance id next.
STATIC_LEAVE_EPOCH = -2


class MemberView(NamedTuple):
    """What the coordinator is to know of a member."""

    topics: tuple[str, ...]
    # None without a pattern that the coordinator matches.
    regex: str | None
    # Numbers of the partitions that the member has, by topic id.
    owned: Mapping[bytes, frozenset[int]]


class HeartbeatRequests:
    """Makes a member's requests; remembers what the coordinator was told."""

    def __init__(self, config: ClientConfig, member_id: str) -> None:
        assert config.group_id, "a member needs a group"
        self._config = config
        self._group_id = config.group_id
        self.member_id = member_id
        # What the last heartbeats said, None when the next one has to say all.
        self._told: MemberView | None = None

    def forget(self) -> None:
        """Say all with the next heartbeat."""
        self._told = None

    def heartbeat(self, epoch: int, view: MemberView) -> ConsumerGroupHeartbeatRequest:
        """The next heartbeat, or the request to join (epoch 0): says what is not known yet."""
        if epoch == JOIN_EPOCH:
            assert not view.owned, "who joins owns nothing"
            self._told = None
        request = self._bare(epoch)
        told = self._told
        if told is None:
            request.rebalance_timeout_ms = self._config.max_poll_interval_ms
            request.rack_id = self._config.client_rack
            request.server_assignor = self._config.group_remote_assignor
        if told is None or told.topics != view.topics:
            request.subscribed_topic_names = list(view.topics)
        if (told.regex if told is not None else None) != view.regex:
            # An empty one takes the pattern back.
            request.subscribed_topic_regex = view.regex or ""
        if told is None or told.owned != view.owned:
            request.topic_partitions = [
                TopicPartitionsRequest(topic_id=topic_id, partitions=sorted(numbers))
                for topic_id, numbers in sorted(view.owned.items())
            ]
        self._told = view
        return request

    def leave(self) -> ConsumerGroupHeartbeatRequest:
        """The last word: for good, or for a while when the member is static."""
        self._told = None
        static = self._config.group_instance_id is not None
        return self._bare(STATIC_LEAVE_EPOCH if static else LEAVE_EPOCH)

    def _bare(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self._config.group_instance_id,
        )
