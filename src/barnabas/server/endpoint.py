"""A listener's name and address, as `listeners` and `advertised.listeners` write them."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.settings.key import whole_number

_PORT_MAX = 65_535


class Endpoint(NamedTuple):
    """NAME://HOST:PORT."""

    # The listener's name, in capitals: PLAINTEXT, CONTROLLER, …
    name: str
    # Empty: every interface.
    host: str
    port: int

    @property
    def address(self) -> str:
        """HOST:PORT, with brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


def parse_endpoint(text: str) -> Endpoint | None:
    """The endpoint that NAME://HOST:PORT stands for; None if it is none."""
    name, separator, address = text.strip().partition("://")
    if not separator or not name:
        return None
    parsed = parse_address(address)
    return None if parsed is None else Endpoint(name.upper(), *parsed)


def parse_address(text: str) -> tuple[str, int] | None:
    """Host and port of HOST:PORT or [IPV6]:PORT; None if it is neither."""
    host, colon, port = text.strip().rpartition(":")
    number = whole_number(port) if port.isdigit() else None
    if not colon or number is None or number > _PORT_MAX:
        return None
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], number
    return None if ":" in host else (host, number)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to the host."""
    if host == "localhost":
        return True
    # Not at the top: most starts do not need it.
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
