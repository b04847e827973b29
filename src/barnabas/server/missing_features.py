"""Tells in the log which API or feature a client asked for that this broker does not have.

Once for each client software and feature: a client that asks again and again says nothing new.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.protocol.api_table import API_ROWS
from barnabas.server.client_software import UNKNOWN_SOFTWARE, ClientSoftware

if TYPE_CHECKING:
    from barnabas.network.connection import Connection

_log = logging.getLogger(__name__)

# Pairs of software and feature that are kept. Names and versions of software are chosen by clients;
# beyond this number nothing more is told.
PAIRS_MAX = 200


class MissingFeatures:
    """What was told already; one for all listeners of a process."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: set[tuple[ClientSoftware, str]] = set()

    def note(self, connection: Connection, feature: str) -> None:
        """Tell of a feature that was asked for, unless that was told.

        Args:
            connection: the client's; it knows the software if the client has named it.
            feature: one of few words that do not depend on the client.
        """
        session = connection.session
        software = session if isinstance(session, ClientSoftware) else UNKNOWN_SOFTWARE
        pair = (software, feature)
        if pair in self._told or len(self._told) >= PAIRS_MAX:
            return
        self._told.add(pair)
        _log.warning(
            "A client asked for a feature that this broker does not have: feature=%s software=%s "
            "version=%s address=%s (told once for each software and feature)",
            feature,
            software.name,
            software.version,
            connection.peer,
        )
        if len(self._told) == PAIRS_MAX:
            _log.warning("Further missing features are not told, after %d", PAIRS_MAX)

    def note_api(self, connection: Connection, api_key: int) -> None:
        """Tell of an API that is not served."""
        row = API_ROWS.get(api_key)
        # Unknown numbers count as one feature: a client may choose any.
        self.note(connection, "an API of an unknown number" if row is None else f"API {row.name}")

    def note_version(self, connection: Connection, api_key: int) -> None:
        """Tell of a version of a served API that is not served."""
        self.note(connection, f"another version of API {API_ROWS[api_key].name}")
