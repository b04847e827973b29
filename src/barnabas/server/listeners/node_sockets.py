"""The sockets of a node by listener: plain ones, or with the TLS of the listener.

Connections to other nodes use the configuration of the listener that they connect to, as in Kafka.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.settings.key import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.runtime.loop import Runtime
    from barnabas.runtime.sockets import Sockets
    from barnabas.server.configs.configuration import Configuration
    from barnabas.server.listeners.listener_tls import ListenerTls
    from barnabas.server.listeners.tls_principals import TlsPrincipals
    from barnabas.settings.definition import ParsedConfig

_log = logging.getLogger(__name__)


class NodeSockets:
    """The plain sockets and the TLS sockets of a node."""

    def __init__(self, configuration: Configuration, runtime: Runtime) -> None:
        """Read the key stores of all listeners with TLS.

        Raises:
            ConfigError: a key store cannot be used.
        """
        self._plain = runtime.sockets
        # TLS sockets by name of the listener, for listeners with TLS.
        self._with_tls: dict[str, Sockets] = {}
        # The contexts of each listener with TLS, by its name.
        self.tls: dict[str, ListenerTls] = {}
        # Determines the principals of each listener with TLS, by the name of the listener.
        self.principals: dict[str, TlsPrincipals] = {}
        protected = [name for name, each in configuration.protocols.items() if each.has_tls]
        if not protected:
            return
        # Imported only if TLS is configured.
        from barnabas.runtime.tls.handshakes import Handshakes
        from barnabas.runtime.tls.tls_sockets import TlsSockets
        from barnabas.runtime.tls.tls_stream import TlsDependencies
        from barnabas.server.listeners.listener_tls import ListenerTls
        from barnabas.server.listeners.tls_principals import TlsPrincipals

        handshakes = Handshakes(runtime.clock, runtime.timer, runtime.executor)
        dependencies = TlsDependencies(runtime.timer, handshakes)
        listening = {
            each.name for each in [*configuration.endpoints, *configuration.controller_endpoints]
        }
        internal = {
            configuration.inter_broker_listener,
            configuration.cluster.controller_listeners[0],
        }
        for name in protected:
            tls = ListenerTls(
                name,
                configuration.protocols[name],
                is_listening=name in listening,
                connects_to_itself=name in internal,
            )
            tls.reload(configuration.parsed, configuration.given)
            self.tls[name] = tls
            self.principals[name] = TlsPrincipals(configuration.parsed, configuration.given, name)
            self._with_tls[name] = TlsSockets(self._plain, dependencies, tls.server, tls.client)

    def apply_config(self, config: ParsedConfig, given: Mapping[str, str]) -> None:
        """Use changed options and files for new connections. Log an error for unusable values."""
        for tls in self.tls.values():
            try:
                if tls.reload(config, given):
                    _log.info("Key stores reloaded: listener=%s", tls.name)
            except ConfigError as error:
                _log.error(
                    "New key stores cannot be used, old key stores kept: listener=%s error=%s",
                    tls.name,
                    error,
                )

    def of(self, listener: str) -> Sockets:
        """Return the sockets of a listener: to accept connections, or to connect to other nodes."""
        return self._with_tls.get(listener, self._plain)
