"""Name and version of a client's software (KIP-511), stored with its connection."""

from __future__ import annotations

from typing import NamedTuple

# Maximum length of each string: clients choose the strings, and may open thousands of connections.
_CHARS_MAX = 100


class ClientSoftware(NamedTuple):
    """Software name and version, from an ApiVersions request of v3 or later."""

    name: str = "unknown"
    version: str = "unknown"

    @classmethod
    def of(cls, name: str, version: str) -> ClientSoftware:
        """Return the client's name and version, truncated to the maximum length."""
        return cls(name[:_CHARS_MAX], version[:_CHARS_MAX])


UNKNOWN_SOFTWARE = ClientSoftware()
