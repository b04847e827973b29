"""TLS options of a client, from its configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.errors import ClientConfigError
from barnabas.runtime.tls.tls_options import KeySource, TlsOptions, TrustSource

if TYPE_CHECKING:
    from barnabas.client.config import ClientConfig


def client_tls_options(config: ClientConfig) -> TlsOptions:
    """Return the options.

    Raises:
        ClientConfigError: keys contradict each other.
    """
    if config.ssl_ca_location is not None and config.ssl_truststore_location is not None:
        raise ClientConfigError("give either ssl.ca.location or ssl.truststore.location, not both")
    if config.ssl_key_location is not None and config.ssl_certificate_location is None:
        raise ClientConfigError("ssl.key.location needs ssl.certificate.location too")
    location = config.ssl_ca_location
    is_system = location == "probe"
    return TlsOptions(
        KeySource(
            location=config.ssl_keystore_location,
            type=_type(config.ssl_keystore_type),
            password=config.ssl_keystore_password,
            key_password=config.ssl_key_password,
            key=config.ssl_keystore_key,
            certificate_chain=config.ssl_keystore_certificate_chain,
            certificate_location=config.ssl_certificate_location,
            key_location=config.ssl_key_location,
        ),
        TrustSource(
            location=config.ssl_truststore_location if location is None or is_system else location,
            type=_type(config.ssl_truststore_type) if location is None else None,
            password=config.ssl_truststore_password,
            certificates=config.ssl_truststore_certificates,
            revoked_location=config.ssl_crl_location,
        ),
        config.ssl_enabled_protocols,
        config.ssl_cipher_suites,
        check_host_name=config.ssl_endpoint_identification_algorithm == "https",
        verify_peer=config.enable_ssl_certificate_verification,
    )


def _type(name: str) -> str | None:
    """Return the type of a store; None for Java's default, which is recognized by its content."""
    return None if name == "JKS" else name
