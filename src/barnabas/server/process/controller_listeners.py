"""Listeners of the controller: for other controllers, brokers, and admin clients (KIP-919)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.server.configs.described_configs import DescribedConfigs
from barnabas.server.dispatch.served_apis import CONTROLLER_APIS
from barnabas.server.handlers.dependencies import ControllerListenerDependencies, HandlerTable
from barnabas.server.quorum.broker_watch import BrokerWatch
from barnabas.server.quotas.connection_quotas import ConnectionQuotas
from barnabas.server.quotas.rate import quota_windows

if TYPE_CHECKING:
    from barnabas.controller.controller import Controller
    from barnabas.server.configs.endpoints import Endpoint
    from barnabas.server.controller_access.controller_access import LocalController, QuorumApi
    from barnabas.server.dispatch.dispatcher import Entry
    from barnabas.server.listeners.listener import Listener
    from barnabas.server.process.shared_server import SharedServer


class ControllerListeners:
    """Binds the controller listeners. They also serve requests on inactive controllers."""

    def __init__(
        self, shared: SharedServer, controller: Controller, local: LocalController, raft: QuorumApi
    ) -> None:
        """Bind the listeners.

        Raises:
            OSError: an address cannot be bound.
        """
        self._shared = shared
        self.listeners: list[Listener] = []
        # Endpoints with the real ports.
        self.bound: list[Endpoint] = []
        self.watch = BrokerWatch(
            shared.node_id,
            controller,
            shared.runtime.timer,
            lambda: shared.channels_to_brokers,
            shared.configuration.inter_broker_listener or "PLAINTEXT",
        )
        # Handlers also look up each other here: an envelope contains a request of another API.
        self._handlers = HandlerTable(self._make_dependencies(local, raft), shared.statistics)
        self._bind()

    def serve(self) -> None:
        """Begin to read from the open connections and from all later connections.

        With an authorizer, listeners that are not in `early.start.listeners` wait until the access
        control entries are loaded.
        """
        shared = self._shared
        early = shared.early_listeners()
        for endpoint, listener in zip(self.bound, self.listeners, strict=True):
            if endpoint.name in early:
                listener.serve()
            else:
                shared.when_loaded(listener.serve)

    def close(self) -> None:
        """Close all connections. Try to write the responses that are complete."""
        for listener in self.listeners:
            listener.on_gone = None
            listener.close()

    def _make_dependencies(
        self, local: LocalController, raft: QuorumApi
    ) -> ControllerListenerDependencies:
        shared = self._shared
        return ControllerListenerDependencies(
            node_id=shared.node_id,
            cluster_id=shared.cluster_id,
            config=shared.config,
            dynamic_config=shared.dynamic,
            clock=shared.runtime.clock,
            cluster=shared.cluster,
            forwarding=local,
            described_configs=DescribedConfigs(
                shared.configuration, shared.dynamic, shared.cluster
            ),
            quorum=shared.quorum,
            quotas=shared.quotas,
            served=CONTROLLER_APIS,
            sockets=shared.sockets,
            guard=None if shared.authorizer is None else shared.authorizer.listener_guard(),
            find_acls=None if shared.authorizer is None else shared.authorizer.find_acls,
            alters_any_broker=True,
            raft=raft,
            watch=self.watch,
            find=self._find,
        )

    def _find(self, api_key: int) -> Entry | None:
        return self._handlers.find(api_key)

    def _bind(self) -> None:
        shared, runtime = self._shared, self._shared.runtime
        # Connections of clients do not count against the limits of these listeners.
        connections = ConnectionQuotas(
            runtime.clock, shared.configuration.connections, quota_windows(shared.config)
        )
        for endpoint in shared.configuration.controller_endpoints:
            listener = shared.make_listener(endpoint, connections, self._handlers.find)
            listener.on_gone = self.watch.on_closed
            self.bound.append(listener.bind(shared.sockets.of(endpoint.name)))
            self.listeners.append(listener)
