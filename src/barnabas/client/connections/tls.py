"""Sockets of a client, with TLS if `security.protocol` requires it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.errors import ClientConfigError

if TYPE_CHECKING:
    from barnabas.client.config import ClientConfig
    from barnabas.runtime.loop import Runtime
    from barnabas.runtime.sockets import Sockets


def client_sockets(runtime: Runtime, config: ClientConfig) -> Sockets:
    """Return the sockets for connections to brokers.

    Raises:
        ClientConfigError: a key store or another TLS option cannot be used.
    """
    if config.security_protocol in ("PLAINTEXT", "SASL_PLAINTEXT"):
        return runtime.sockets
    # Imported only if TLS is configured.
    from barnabas.client.tls_config import client_tls_options
    from barnabas.runtime.tls.contexts import client_context
    from barnabas.runtime.tls.handshakes import Handshakes
    from barnabas.runtime.tls.tls_options import TlsOptionsError
    from barnabas.runtime.tls.tls_sockets import TlsSockets
    from barnabas.runtime.tls.tls_stream import TlsDependencies

    try:
        context = client_context(client_tls_options(config))
    except TlsOptionsError as error:
        raise ClientConfigError(str(error)) from None
    handshakes = Handshakes(runtime.clock, runtime.timer, runtime.executor)
    dependencies = TlsDependencies(runtime.timer, handshakes)
    return TlsSockets(runtime.sockets, dependencies, lambda: context, lambda: context)
