"""Which limit holds for a user and client id, and with whom it is shared (KIP-55, KIP-124).

The most specific of eight levels wins: a user's quota before the default user's before none, and
within each the client id's before the default client id's before none. Who has a quota of a level
without a client part shares it with all clients of the user, and the other way round.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, NamedTuple

from barnabas.metadata.client_quotas_image import CLIENT_ID, IP, USER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.metadata.client_quotas_image import ClientQuotasImage

# A level's part that is not there; a name is never empty.
_ABSENT = ""
_CACHED_MAX = 10_000
# Client ids that agree so far share a limit: one may be 32 KB long, and thousands are kept.
_CLIENT_ID_CHARS = 256


class QuotaLimit(NamedTuple):
    """A limit, and who uses it up together: equal user and client, "" for any."""

    value: float
    user: str
    client_id: str


class QuotaLimits:
    """The limits of one key."""

    __slots__ = ("_by_level", "_cached")

    def __init__(self, image: ClientQuotasImage, key: str) -> None:
        # By (user, client id), None for the default entity, "" for a part that is not there.
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
        """The limit that holds; None without one."""
        if len(client_id) > _CLIENT_ID_CHARS:
            client_id = client_id[:_CLIENT_ID_CHARS]
        asker = (user, client_id)
        if asker not in self._cached:
            # Client ids are the peers' choice: what is kept of them has to end somewhere.
            if len(self._cached) >= _CACHED_MAX:
                self._cached.clear()
            self._cached[asker] = self._look_up(user, client_id)
        return self._cached[asker]

    def _look_up(self, user: str, client_id: str) -> QuotaLimit | None:
        for by_user in (user, None, _ABSENT):
            for by_client in (client_id, None, _ABSENT):
                value = self._by_level.get((by_user, by_client))
                if value is not None:
                    return QuotaLimit(
                        value,
                        _ABSENT if by_user == _ABSENT else user,
                        _ABSENT if by_client == _ABSENT else client_id,
                    )
        return None


def address_limits(image: ClientQuotasImage, key: str) -> tuple[float | None, Mapping[str, float]]:
    """The default of all addresses, and the limits of single ones."""
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
