"""The identity of a replica of the metadata log: node id and log directory id (KIP-853).

A node that returns with an empty disk is a different replica, because it does not know the votes of
the earlier replica.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.protocol.schema import ZERO_UUID


class ReplicaKey(NamedTuple):
    """A replica; the directory id is zero where it is unknown (kraft.version 0)."""

    id: int
    directory_id: bytes = ZERO_UUID


class Address(NamedTuple):
    """The address where a replica listens for other replicas."""

    host: str
    port: int
