"""What a client says it is (KIP-511); kept with its connection."""

from __future__ import annotations

from typing import NamedTuple

# What is kept of each: clients choose them, and may have thousands of connections.
_CHARS_MAX = 100


class ClientSoftware(NamedTuple):
    """As in ApiVersions v3 and later."""

    name: str = "unknown"
    version: str = "unknown"

    @classmethod
    def of(cls, name: str, version: str) -> ClientSoftware:
        """Return the beginnings of what a client says."""
        return cls(name[:_CHARS_MAX], version[:_CHARS_MAX])


UNKNOWN_SOFTWARE = ClientSoftware()
