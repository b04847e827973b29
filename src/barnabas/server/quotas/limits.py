"""Limits by user and client id, and the clients that share a limit (KIP-55, KIP-124).

The most specific of eight levels applies. A quota of the user precedes one of the default user, and
that precedes one without a user. Within each of these, the order is the same for client ids. A
quota without a client id is shared by all clients of the user. A quota without a user is shared by
all users of the client id. Quotas of client ids do not apply to clients with an empty client id.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, NamedTuple

from barnabas.metadata.configs_image import CLIENT_ID, IP, USER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.metadata.configs_image import ClientQuotasImage

# Stands for a missing part of a level. Names are never empty.
_ABSENT = ""
_CACHED_MAX = 10_000
# Client ids with this common prefix share a limit: a client id may have 32 KB, and thousands are
# cached.
_CLIENT_ID_CHARS = 256


class QuotaLimit(NamedTuple):
    """A limit, and the user and client id that share it. "" stands for any user or client id."""

    value: float
    user: str
    client_id: str


class QuotaLimits:
    """Limits of one quota key."""

    __slots__ = ("_by_level", "_cached")

    def __init__(self, image: ClientQuotasImage, key: str) -> None:
        # Limits by (user, client id). None stands for the default entity, "" for a missing part.
        self._by_level: dict[tuple[str | None, str | None], float] = {}
        self._cached: dict[tuple[str, str], QuotaLimit | None] = {}
        for entity, values in image:
            by_type = dict(entity)
            if key in values and IP not in by_type:
                level = by_type.get(USER, _ABSENT), by_type.get(CLIENT_ID, _ABSENT)
                self._by_level[level] = values[key]

    def __len__(self) -> int:
        return len(self._by_level)

    def find(self, user: str, client_id: str) -> QuotaLimit | None:
        """Return the limit that applies to a client, or None."""
        if len(client_id) > _CLIENT_ID_CHARS:
            client_id = client_id[:_CLIENT_ID_CHARS]
        key = (user, client_id)
        if key not in self._cached:
            # Clients choose their ids, so the size of the cache must be bounded.
            if len(self._cached) >= _CACHED_MAX:
                self._cached.clear()
            self._cached[key] = self._look_up(user, client_id)
        return self._cached[key]

    def _look_up(self, user: str, client_id: str) -> QuotaLimit | None:
        # The default quotas do not apply to an empty name, as in Kafka.
        for by_user in (user, None, _ABSENT) if user else (_ABSENT,):
            for by_client in (client_id, None, _ABSENT) if client_id else (_ABSENT,):
                value = self._by_level.get((by_user, by_client))
                if value is not None:
                    return QuotaLimit(
                        value,
                        _ABSENT if by_user == _ABSENT else user,
                        _ABSENT if by_client == _ABSENT else client_id,
                    )
        return None


def address_limits(image: ClientQuotasImage, key: str) -> tuple[float | None, Mapping[str, float]]:
    """Return the default limit of all addresses, and the limits of single addresses."""
    default: float | None = None
    by_address: dict[str, float] = {}
    for entity, values in image:
        if key not in values or len(entity) != 1 or entity[0][0] != IP:
            continue
        address = entity[0][1]
        if address is None:
            default = values[key]
        else:
            by_address[str(ipaddress.ip_address(address))] = values[key]
    return default, by_address
