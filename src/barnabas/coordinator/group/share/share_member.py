"""One member of a share group (Kafka: ShareGroupMember)."""

from __future__ import annotations

import msgspec

from barnabas.coordinator.group.assignment import NOTHING, Target

# The member epoch with which a client leaves the group, and the one with which it joins.
LEAVE_EPOCH = -1
JOIN_EPOCH = 0


class ShareMember(msgspec.Struct, frozen=True):
    """A member. A change creates a new object, and its record replaces the old one.

    Partitions are shared, so a member needs no reconciliation: it gets its target at once.
    """

    member_id: str
    # Epoch of the target assignment that the member has.
    member_epoch: int = 0
    # The epoch before that. A client that missed the last response still sends it.
    previous_member_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    # Starts with a slash, as Java prints addresses.
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    # Partitions from which the client may fetch.
    assigned: Target = NOTHING

    @property
    def must_revoke(self) -> bool:
        """False: the member gives up nothing, since partitions are shared."""
        return False
