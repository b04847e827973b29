"""What a client says it is (KIP-511); kept with its connection."""

from __future__ import annotations

from typing import NamedTuple


class ClientSoftware(NamedTuple):
    """As in ApiVersions v3 and later."""

    name: str = "unknown"
    version: str = "unknown"


UNKNOWN_SOFTWARE = ClientSoftware()
