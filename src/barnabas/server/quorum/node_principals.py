"""The principals by which nodes know each other, and the rights that they lack.

The authorizer refuses the requests between nodes unless their principal is a super user. While a
node has not loaded the access control entries, it refuses all other principals, so that entries for
nodes do not help when all nodes start together (KIP-801).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.network.principal import ANONYMOUS, Principal
from barnabas.protocol.errors import ErrorCode
from barnabas.server.configs.config import AuthorizerConfig
from barnabas.server.configs.listener_sasl import LoginSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.server.configs.configuration import Configuration

# Errors of requests between nodes that the authorizer refuses. UNKNOWN_SERVER_ERROR is that of a
# node that has not loaded the access control entries.
_REFUSALS = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR)


class RefusedPrincipal(NamedTuple):
    """A principal of this node that is not among its own super users."""

    listener: str
    protocol: str
    principal: str
    # Whether it is the listener of the controllers, instead of that of the brokers.
    is_controller: bool


def refused_principals(configuration: Configuration) -> Iterator[RefusedPrincipal]:
    """Yield the principals of this node at the listeners of other nodes that are not super users.

    Principals from certificates and tokens are unknown here; they are left out.
    """
    authorizer = AuthorizerConfig.of(configuration.parsed)
    if authorizer is None or configuration.cluster.is_alone:
        return
    controller = configuration.cluster.controller_listeners[0]
    for name in dict.fromkeys((controller, configuration.inter_broker_listener)):
        if name is None:
            continue
        principal = _principal(configuration, name)
        if principal is not None and principal not in authorizer.super_users:
            protocol = configuration.protocols[name].name
            yield RefusedPrincipal(name, protocol, principal, name == controller)


def refusal_reason(configuration: Configuration, error: ErrorCode) -> str:
    """Return why controllers refuse the requests of this node, with a remedy; empty if unknown.

    Args:
        configuration: the configuration of this node.
        error: the error of the requests.
    """
    authorizer = AuthorizerConfig.of(configuration.parsed)
    if error not in _REFUSALS or authorizer is None:
        return ""
    name = configuration.cluster.controller_listeners[0]
    principal = _principal(configuration, name)
    if error is ErrorCode.UNKNOWN_SERVER_ERROR and principal in authorizer.super_users:
        return ""
    shown = "the principal of this node" if principal is None else f"the principal {principal}"
    return (
        f"other controllers refuse requests of this node: {error.name}. At their listener {name} "
        f"({configuration.protocols[name].name}) this node is {shown}: it must be in super.users "
        "of all nodes"
    )


def _principal(configuration: Configuration, listener: str) -> str | None:
    """Return the principal of this node at a listener of other nodes; None if it is unknown."""
    protocol = configuration.protocols[listener]
    if protocol.has_sasl:
        login = configuration.logins.get(listener)
        return str(Principal(login.username)) if isinstance(login, LoginSettings) else None
    if not protocol.has_tls:
        return str(ANONYMOUS)
    given = configuration.given
    key = "ssl.client.auth"
    client_auth = given.get(f"listener.name.{listener.lower()}.{key}", given.get(key, "none"))
    return str(ANONYMOUS) if client_auth.lower() == "none" else None
