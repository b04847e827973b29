"""Users that a proxy in front of the console proves, for example with single sign-on (SSO).

The proxy writes the name of the user into a header. The console believes it only from addresses of
trusted proxies, because any other client could write the header too.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from barnabas.console.access.users import User, role_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request

    from barnabas.console.access.users import Role

_NAME_MAX = 200
_GROUPS_MAX = 1_000
_FORWARDED = "x-forwarded-for"


class TrustedProxy:
    """What is believed of the headers of requests.

    Args:
        user_header: The header with the name of the user; "" for none.
        groups_header: The header with the user's groups, with commas between them; "" for none.
        addresses: Addresses and networks of proxies.
        roles: Roles by the names of users and groups.
    """

    def __init__(
        self,
        user_header: str,
        groups_header: str,
        addresses: Sequence[str],
        roles: Mapping[str, Role],
    ) -> None:
        self.user_header = user_header.lower()
        self._groups_header = groups_header.lower()
        self._networks = [ipaddress.ip_network(each, strict=False) for each in addresses]
        self._roles = roles

    def is_trusted(self, request: Request) -> bool:
        """Return whether the request comes from a trusted proxy."""
        return self._is_proxy(_peer(request))

    def _is_proxy(self, text: str) -> bool:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._networks)

    def is_forged(self, request: Request) -> bool:
        """Return whether a client that is no trusted proxy sends the header of a user."""
        headers = (self.user_header, self._groups_header)
        has_header = any(each and each in request.headers for each in headers)
        return has_header and not self.is_trusted(request)

    def user(self, request: Request) -> User | None:
        """Return the user that a trusted proxy names; None without one."""
        if not self.user_header or not self.is_trusted(request):
            return None
        names = request.headers.getlist(self.user_header)
        # Two headers: one of them may be the client's.
        if len(names) != 1 or not names[0].strip() or len(names[0]) > _NAME_MAX:
            return None
        name = names[0].strip()
        groups = request.headers.get(self._groups_header, "") if self._groups_header else ""
        found = [each.strip() for each in groups.split(",")[:_GROUPS_MAX] if each.strip()]
        return User(name, role_of(self._roles, name, found), "proxy")

    def address(self, request: Request) -> str:
        """Return the address of the client; behind trusted proxies, that of the proxy's client."""
        address = _peer(request)
        forwarded = ",".join(request.headers.getlist(_FORWARDED)).split(",")
        # Each proxy adds the address of its own client at the end.
        while self._is_proxy(address) and forwarded:
            last = forwarded.pop().strip()
            if not last:
                break
            address = last[:_NAME_MAX]
        return address


def _peer(request: Request) -> str:
    return "" if request.client is None else request.client.host
