"""Which addresses a configuration binds, and which it advertises (Kafka: the listeners keys)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.server.endpoint import Endpoint, parse_endpoint
from barnabas.settings.definition import ConfigError

if TYPE_CHECKING:
    from barnabas.settings.definition import ParsedConfig

_FORM = "NAME://HOST:PORT, for example PLAINTEXT://127.0.0.1:9092"
_EVERY_INTERFACE = ("", "0.0.0.0", "::")  # noqa: S104


def bound_endpoints(config: ParsedConfig) -> list[Endpoint]:
    """What to listen on, the controller's listeners left out.

    Raises:
        ConfigError: text that is no endpoint, a name used twice, a protocol that is not spoken.
    """
    controllers = {name.upper() for name in config.strings("controller.listener.names")}
    endpoints: list[Endpoint] = []
    for text in config.strings("listeners"):
        endpoint = _endpoint("listeners", text)
        if endpoint.name in controllers:
            continue
        if endpoint.name in {known.name for known in endpoints}:
            raise ConfigError("listeners", text, "each listener name once")
        if endpoint.name.startswith(("SSL", "SASL")):
            raise ConfigError("listeners", text, "PLAINTEXT listeners only")
        endpoints.append(endpoint)
    if not endpoints:
        raise ConfigError(
            "listeners", ",".join(config.strings("listeners")), "at least one listener for clients"
        )
    return endpoints


def advertised_endpoints(config: ParsedConfig, bound: list[Endpoint]) -> list[Endpoint]:
    """What clients are told, one for each of `bound` (whose ports are the real ones).

    Raises:
        ConfigError: a listener that is not there, or no address that a client can connect to.
    """
    given: dict[str, Endpoint] = {}
    if config["advertised.listeners"] is not None:
        for text in config.strings("advertised.listeners"):
            endpoint = _endpoint("advertised.listeners", text)
            given[endpoint.name] = endpoint
    advertised = [given.get(endpoint.name, endpoint) for endpoint in bound]
    for endpoint in advertised:
        if endpoint.host in _EVERY_INTERFACE:
            raise ConfigError(
                "advertised.listeners",
                str(endpoint),
                "an address that clients can connect to; set advertised.listeners "
                "when listening on every interface",
            )
    return advertised


def _endpoint(key: str, text: str) -> Endpoint:
    endpoint = parse_endpoint(text)
    if endpoint is None:
        raise ConfigError(key, text, _FORM)
    return endpoint
