"""The JoinGroup data of a member of a consumer group that uses the classic protocol."""

from __future__ import annotations

import msgspec


class ClassicMetadata(msgspec.Struct, frozen=True):
    """The fields of JoinGroup that the member needs if the group becomes a classic group."""

    session_timeout_ms: int
    # Subscription (ConsumerProtocol) by assignment protocol, in the member's order of preference.
    # Not empty, and each name once.
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def protocol_name(self) -> str:
        """The protocol that JoinGroup returns: the member's first one."""
        return self.protocols[0][0]

    @property
    def subscription_bytes(self) -> int:
        """The size of all subscriptions."""
        return sum(len(metadata) for _, metadata in self.protocols)
