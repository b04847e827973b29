"""The software of clients (KIP-511), and log lines for features that a client misses.

Name and version of the software are stored with the connection. An API, version or feature that a
client requests and this broker does not have is logged once for each software, because clients
repeat such requests.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.api_table import API_ROWS

if TYPE_CHECKING:
    from barnabas.network.connection import Connection


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


_log = logging.getLogger(__name__)

# Maximum number of logged pairs. Clients choose names and versions of software, so the number of
# pairs must be bounded.
PAIRS_MAX = 200


class MissingFeatures:
    """Remembers the logged pairs for all listeners of a process."""

    __slots__ = ("_reported",)

    def __init__(self) -> None:
        # Logged pairs of client software and feature. Invariant: at most `PAIRS_MAX`.
        self._reported: set[tuple[ClientSoftware, str]] = set()

    def note(self, connection: Connection, feature: str) -> None:
        """Log a feature that a client requested, unless the pair was logged before.

        Args:
            connection: connection of the client, with the client software if it is known.
            feature: name of the feature, from a small set that does not depend on the client.
        """
        session = connection.session
        software = session if isinstance(session, ClientSoftware) else UNKNOWN_SOFTWARE
        pair = (software, feature)
        if pair in self._reported or len(self._reported) >= PAIRS_MAX:
            return
        self._reported.add(pair)
        _log.warning(
            "A client requested a feature that this broker does not have: feature=%s software=%s "
            "version=%s address=%s (logged once for each software and feature)",
            feature,
            software.name,
            software.version,
            connection.peer,
        )
        if len(self._reported) == PAIRS_MAX:
            _log.warning("Further missing features are not logged: limit=%d", PAIRS_MAX)

    def note_api(self, connection: Connection, api_key: int) -> None:
        """Log a request for an API that is not served."""
        row = API_ROWS.get(api_key)
        # All unknown API keys count as one feature, because a client can send any number.
        self.note(connection, "an API with an unknown key" if row is None else f"API {row.name}")

    def note_version(self, connection: Connection, api_key: int) -> None:
        """Log a request for an unsupported version of a served API."""
        self.note(connection, f"unsupported version of API {API_ROWS[api_key].name}")
