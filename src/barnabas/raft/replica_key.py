"""Who a replica of the metadata log is: its node, and the directory that its log lies in (KIP-853).

A node that comes back with an empty disk is another replica: what the old one promised, the new
one does not know of.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.protocol.schema import ZERO_UUID


class ReplicaKey(NamedTuple):
    """A replica; the directory id is zero where it is not known (kraft.version 0)."""

    id: int
    directory_id: bytes = ZERO_UUID


class Address(NamedTuple):
    """Where a replica listens for the others."""

    host: str
    port: int
