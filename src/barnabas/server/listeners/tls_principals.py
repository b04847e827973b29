"""Principals of connections with TLS, from the certificates of clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.network.principal import ANONYMOUS, Principal
from barnabas.runtime.tls.distinguished_name import MalformedCertificateError, subject_of
from barnabas.server.configs.tls_config import ListenerValues, UnusableKeyStoreError
from barnabas.server.listeners.principal import UnknownPrincipalError
from barnabas.server.listeners.principal_rules import (
    NoMatchingRuleError,
    PrincipalRules,
    PrincipalRulesError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.network.connection import Connection
    from barnabas.settings.definition import ParsedConfig

_KEY = "ssl.principal.mapping.rules"


class TlsPrincipals:
    """Determines the principals of clients of one listener."""

    __slots__ = ("_rules",)

    def __init__(self, config: ParsedConfig, given: Mapping[str, str], listener: str) -> None:
        """Parse the rules.

        Raises:
            ConfigError: the rules are malformed.
        """
        text = ListenerValues(config, given, listener).value(_KEY)
        assert isinstance(text, str), text
        try:
            self._rules = PrincipalRules(text)
        except PrincipalRulesError as error:
            raise UnusableKeyStoreError(_KEY, str(error)) from None

    def identify(self, connection: Connection) -> Principal:
        """Return the client's principal.

        Raises:
            UnknownPrincipalError: no rule matches the certificate.
        """
        stream = connection.stream
        certificate = None if stream is None else stream.peer_certificate
        if certificate is None:
            return ANONYMOUS
        try:
            return Principal(self._rules.name(subject_of(certificate)))
        except (NoMatchingRuleError, MalformedCertificateError) as error:
            raise UnknownPrincipalError(str(error)) from None
