"""Name and address of a listener, as in `listeners` and `advertised.listeners`."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.server.configs.security_protocol import SecurityProtocol
from barnabas.settings.key import whole_number

_PORT_MAX = 65_535
_WILDCARD_HOSTS = ("", "0.0.0.0", "::")  # noqa: S104 - only compared


class Endpoint(NamedTuple):
    """A listener endpoint, written as NAME://HOST:PORT."""

    # Name of the listener in upper case, for example PLAINTEXT or CONTROLLER.
    name: str
    # Empty for all interfaces.
    host: str
    port: int
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT

    @property
    def address(self) -> str:
        """HOST:PORT, with brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


def parse_endpoint(text: str) -> Endpoint | None:
    """Parse NAME://HOST:PORT, and return None for invalid text."""
    name, separator, address = text.strip().partition("://")
    if not separator or not name:
        return None
    parsed = parse_address(address)
    return None if parsed is None else Endpoint(name.upper(), *parsed)


def parse_address(text: str) -> tuple[str, int] | None:
    """Parse HOST:PORT or [IPV6]:PORT into host and port, and return None for invalid text."""
    host, colon, port = text.strip().rpartition(":")
    number = whole_number(port) if port.isdigit() else None
    if not colon or number is None or number > _PORT_MAX:
        return None
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], number
    return None if ":" in host else (host, number)


def is_wildcard(host: str) -> bool:
    """Return whether the host stands for all interfaces, so that clients cannot connect to it."""
    return host in _WILDCARD_HOSTS


def is_loopback(host: str) -> bool:
    """Return whether the host is a loopback address, which only this machine can connect to."""
    if host == "localhost":
        return True
    # Imported here because most starts do not need it.
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
