"""Whether the metadata quorum has a leader, as `doctor`, `why` and `top` need to know first.

Brokers answer Metadata from what they have stored, also without a controller. Only the quorum's
leader answers DescribeQuorum: without one the request fails, and so it tells the loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.errors import ClientError, NoBrokersError
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.client.admin.quorum import QuorumDescription
    from barnabas.client.facade import Client

__all__ = ["NO_LEADER", "QuorumState", "quorum_state"]

NO_LEADER = (
    "the metadata quorum has no leader: no topic is created, no partition gets a new leader, and "
    "no broker joins"
)
# Errors that tell something else than a quorum without a leader.
_OTHER_REASONS = frozenset({ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})


class QuorumState(NamedTuple):
    """What the quorum's leader answered, or that there is none."""

    # None: no answer, or one without a leader.
    description: QuorumDescription | None
    # Whether the quorum has no leader. False too when the brokers cannot tell.
    is_lost: bool

    @property
    def leader(self) -> int | None:
        """The id of the active controller."""
        return None if self.description is None else self.description.leader_id


def quorum_state(client: Client) -> QuorumState:
    """Ask once for the quorum; takes request.timeout.ms at most for each broker that is tried."""
    try:
        found = client.admin.describe_quorum(once=True)
    except NoBrokersError as error:
        # A broker that answers other requests, and this one not, waits for a controller.
        waited = any("DescribeQuorum" in reason for _, reason in error.attempts)
        return QuorumState(None, is_lost=waited)
    except ClientError as error:
        return QuorumState(None, is_lost=error.error_code not in _OTHER_REASONS)
    if found.leader_id < 0:
        return QuorumState(None, is_lost=True)
    return QuorumState(found, is_lost=False)
