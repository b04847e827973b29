"""A change of the voters that is under way at the leader (KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from barnabas.raft.messages import AddVoterRequest, RemoveVoterRequest


class VoterChange(msgspec.Struct):
    """One change; the leader makes no other one before it is over."""

    request: AddVoterRequest | RemoveVoterRequest
    # When to give up on it.
    deadline: float
    # Whether the new voter was asked what it supports.
    is_asked: bool = False
    # Offset of its VotersRecord; None while that is not appended.
    offset: int | None = None
    # Whether the request was answered.
    is_answered: bool = False
