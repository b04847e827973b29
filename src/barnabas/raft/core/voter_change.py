"""A pending change of the voters at the leader (KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from barnabas.raft.core.messages import AddVoterRequest, RemoveVoterRequest


class VoterChange(msgspec.Struct):
    """One change. The leader starts no other change before this one ends."""

    request: AddVoterRequest | RemoveVoterRequest
    # When the change fails with a timeout, monotonic ms.
    deadline: float
    # Whether the leader has requested the supported versions of the new voter.
    are_versions_requested: bool = False
    # Offset of the VotersRecord; None before it is appended.
    offset: int | None = None
    # Whether the leader has responded to the request.
    has_responded: bool = False
