"""The TLS contexts of one listener, which change with its key stores (KIP-226)."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from barnabas.runtime.packages import needed_for
from barnabas.runtime.tls.contexts import (
    TlsContext,
    check_compatible,
    check_mutual_trust,
    client_context,
    server_context,
)
from barnabas.runtime.tls.key_stores import file_versions
from barnabas.runtime.tls.tls_options import TlsOptionsError
from barnabas.server.configs.tls_config import (
    UnusableKeyStoreError,
    listener_prefix,
    tls_options,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.runtime.tls.tls_options import TlsOptions
    from barnabas.server.configs.endpoints import SecurityProtocol
    from barnabas.settings.definition import ParsedConfig


@lru_cache(maxsize=16)
def end_of_certificate(der: bytes) -> float:
    """Return the end of the validity of a certificate (Unix time)."""
    # Imported here because it takes 30 ms.
    with needed_for("the end of a certificate"):
        from cryptography.x509 import load_der_x509_certificate

    return load_der_x509_certificate(der).not_valid_after_utc.timestamp()


class ListenerTls:
    """Contexts for new connections. An open connection keeps its context."""

    def __init__(
        self,
        name: str,
        protocol: SecurityProtocol,
        *,
        is_listening: bool,
        connects_to_itself: bool,
    ) -> None:
        """Create the object without contexts. `reload` creates them.

        Args:
            name: name of the listener.
            protocol: its security protocol.
            is_listening: whether this node accepts connections on the listener; otherwise it only
                connects to other nodes.
            connects_to_itself: whether the nodes of the cluster connect to each other's listeners
                of this name, so that they must trust each other.
        """
        self.name = name
        self._protocol = protocol
        self._is_listening = is_listening
        self._connects_to_itself = connects_to_itself
        # Source of the current contexts: the options, and the versions of their files.
        self._source: tuple[TlsOptions, tuple[object, ...]] | None = None
        # Contexts of accepted and of outgoing connections. None before `reload`; `_server`
        # also if this node only connects.
        self._server: TlsContext | None = None
        self._client: TlsContext | None = None

    def server(self) -> TlsContext:
        """Return the context of accepted connections."""
        assert self._server is not None, self.name
        return self._server

    def expires_at_s(self) -> float | None:
        """Return the end of the own certificate (Unix time); None if this node only connects."""
        own = None if self._server is None else self._server.own_certificate
        return None if own is None else end_of_certificate(own)

    def client(self) -> TlsContext:
        """Return the context of connections to other nodes."""
        assert self._client is not None, self.name
        return self._client

    def reload(self, config: ParsedConfig, given: Mapping[str, str]) -> bool:
        """Create new contexts if an option or a file has changed. Return whether one has.

        After an error, the old contexts stay in use.

        Raises:
            ConfigError: an option cannot be used.
        """
        options = tls_options(config, given, self.name, self._protocol)
        source = (options, file_versions(options))
        if source == self._source:
            return False
        self._server, self._client = self._make(options, given)
        self._source = source
        return True

    def check_change(self, config: ParsedConfig, given: Mapping[str, str]) -> None:
        """Check that the contexts of a new configuration can replace the current contexts.

        Raises:
            ConfigError: an option cannot be used. Or the new certificate has another subject or
                lacks names, which other nodes and clients may rely on.
        """
        options = tls_options(config, given, self.name, self._protocol)
        server, client = self._make(options, given)
        if server is None:
            return
        try:
            if self._server is not None:
                check_compatible(
                    self._server.own_certificate,
                    server.own_certificate,
                    may_change_subject=config.boolean("ssl.allow.dn.changes"),
                    may_lose_names=config.boolean("ssl.allow.san.changes"),
                )
            if self._connects_to_itself:
                check_mutual_trust(server, client)
        except TlsOptionsError as error:
            raise self._unusable(error, given) from None

    def _make(
        self, options: TlsOptions, given: Mapping[str, str]
    ) -> tuple[TlsContext | None, TlsContext]:
        try:
            server = server_context(options) if self._is_listening else None
            return server, client_context(options)
        except TlsOptionsError as error:
            raise self._unusable(error, given) from None

    def _unusable(self, error: TlsOptionsError, given: Mapping[str, str]) -> UnusableKeyStoreError:
        key = f"ssl.{error.option}"
        own = f"{listener_prefix(self.name)}{key}"
        return UnusableKeyStoreError(own if own in given else key, error.reason)
