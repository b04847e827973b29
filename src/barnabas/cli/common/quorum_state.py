"""Whether the metadata quorum has a leader; `doctor`, `why` and `top` check this first.

Brokers answer Metadata from their stored state, even without a controller. Only the quorum's leader
answers DescribeQuorum. Without a leader that request fails, which shows the loss.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.errors import ClientError, NoBrokersError
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.client.admin.cluster import QuorumDescription
    from barnabas.client.facade import Client

__all__ = ["NO_LEADER", "QuorumState", "quorum_state"]

NO_LEADER = (
    "the metadata quorum has no leader: no topic can be created, no partition can get "
    "a new leader, and no broker can join"
)
# Errors that do not mean that the quorum has no leader.
_OTHER_REASONS = frozenset({ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})


# Usual time of an election (s).
_ELECTION_S = 1.5


class QuorumState(NamedTuple):
    """The description of the quorum, or the fact that it has no leader."""

    # None: there was no response, or it named no leader.
    description: QuorumDescription | None
    # Whether the quorum has no leader. Also False when the brokers cannot tell.
    is_lost: bool

    @property
    def leader(self) -> int | None:
        """The id of the active controller; None if it is unknown."""
        return None if self.description is None else self.description.leader_id


def quorum_state(client: Client) -> QuorumState:
    """Request the quorum state; takes at most request.timeout.ms per broker tried.

    During an election there is no leader for a moment. So a loss that was reported sooner than an
    election takes is only believed if a second request confirms it.
    """
    started = time.monotonic()
    found = _request(client)
    left_s = _ELECTION_S - (time.monotonic() - started)
    if found.is_lost and left_s > 0:
        time.sleep(left_s)
        found = _request(client)
    return found


def _request(client: Client) -> QuorumState:
    try:
        found = client.admin.describe_quorum(once=True)
    except NoBrokersError as error:
        # A broker that answers other requests but not this one waits for a controller.
        waited = any("DescribeQuorum" in reason for _, reason in error.attempts)
        return QuorumState(None, is_lost=waited)
    except ClientError as error:
        return QuorumState(None, is_lost=error.error_code not in _OTHER_REASONS)
    if found.leader_id < 0:
        return QuorumState(None, is_lost=True)
    return QuorumState(found, is_lost=False)
