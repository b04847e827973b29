"""Whether a replica is in contact with a leader that a majority of the voters follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.raft.core.roles import NEVER, Follower, Leader

if TYPE_CHECKING:
    from barnabas.raft.core.raft_core import RaftCore


# A leader answers a fetch without new records after 500 ms; twice that means no contact.
CONTACT_MS = 1_000.0


def has_contact(core: RaftCore, fetch_timeout_ms: float, now_ms: float) -> bool:
    """Return whether this replica was recently in contact with a working quorum.

    A leader has contact if a majority of the voters has fetched within `CONTACT_MS`. A follower or
    an observer has contact if the leader has answered one of its fetches within that time.

    Args:
        core: the state machine of this replica.
        fetch_timeout_ms: `controller.quorum.fetch.timeout.ms`.
        now_ms: the monotonic time.
    """
    role = core.role
    match role:
        case Leader():
            fetched = sum(
                now_ms - each.last_fetch_ms <= CONTACT_MS for each in role.voters.values()
            )
            return fetched + core.is_voter >= core.voters.majority
        case Follower():
            last_answer_ms = role.fetch_deadline - fetch_timeout_ms
            is_recent = now_ms - last_answer_ms <= CONTACT_MS
            return role.has_fetched and role.lost_deadline == NEVER and is_recent
        case _:
            return False
