"""Creation of a node's listeners: dispatcher, and the gate where clients log in by SASL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.credentials import SECRET_KEY
from barnabas.server.dispatch.dispatcher import Dispatcher
from barnabas.server.listeners.listener import Listener

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.server.configs.endpoint import Endpoint
    from barnabas.server.dispatch.dispatcher import Entry
    from barnabas.server.process.shared_server import SharedServer
    from barnabas.server.quotas.connection_quotas import ConnectionQuotas


def make_listener(
    shared: SharedServer,
    endpoint: Endpoint,
    connections: ConnectionQuotas,
    find: Callable[[int], Entry | None],
) -> Listener:
    """Return the listener of an endpoint. It is not bound yet.

    Args:
        shared: dependencies of all listeners of the node.
        endpoint: name, address and protocol.
        connections: limits of the number of connections.
        find: returns the entry of an API key in the table of served APIs.
    """
    dependencies = shared.request_dependencies(endpoint.name)
    settings = shared.configuration.sasl.get(endpoint.name)
    if settings is None:
        on_request = Dispatcher(find, dependencies).on_request
        return Listener(
            endpoint,
            shared.config,
            shared.connection_dependencies,
            connections,
            on_request,
            shared.sockets.principals.get(endpoint.name),
        )
    # Imported only for listeners with SASL.
    from barnabas.server.security.sasl.gate import GateTimes, SaslGate
    from barnabas.server.security.sasl.image_users import ImageUsers
    from barnabas.server.security.sasl.mechanisms import Mechanisms
    from barnabas.server.security.sasl.token_users import TokenUsers

    secret_key = shared.config.optional_string(SECRET_KEY) or ""
    tokens = TokenUsers(secret_key, shared.runtime.clock)
    users = ImageUsers(shared.cluster, shared.cluster_id, tokens)
    mechanisms = Mechanisms(users, shared.runtime).offered(settings)
    times = GateTimes(shared.runtime.clock, shared.runtime.timer)
    gate = SaslGate(settings, mechanisms, times, find, dependencies, shared.failed_logins)
    listener = Listener(
        endpoint, shared.config, shared.connection_dependencies, connections, gate.on_request
    )
    listener.on_admitted = gate.on_admitted
    return listener
