"""A broker with TLS, SASL and an authorizer, for attacks on its listeners.

Listeners: open plaintext, TLS, SASL in plaintext, and SASL over TLS. The SASL listeners offer
PLAIN, SCRAM and OAUTHBEARER with signed tokens. The users are super users, so that requests of an
attacker with an accepted login succeed.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jwt.algorithms import ECAlgorithm

from barnabas.runtime.web import verifying_context
from barnabas.sasl.jaas import OAUTHBEARER_MODULE
from barnabas.testing.free_ports import free_ports
from certificates import shared_authority
from conformance.sasl_brokers import PLAIN_JAAS, SCRAM_JAAS, SaslBarnabas

USER, PASSWORD = "alice", "alice-secret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
ISSUER, AUDIENCE = "https://issuer.example", "kafka"
KEY_ID = "issuer-key"
_METRICS = "metrics "


class SecuredBroker(SaslBarnabas):
    """One broker process with all kinds of listeners."""

    def __init__(
        self, directory: Path, key: Any, settings: Mapping[str, str] | None = None
    ) -> None:
        """Args:
        directory: directory for data, certificates and the log.
        key: the private elliptic key (P-256) of the issuer of tokens.
        settings: more keys of server.properties.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self.tls_port, self.sasl_tls_port = free_ports(2)
        super().__init__(directory)
        authority = shared_authority()
        self.ca = directory / "ca.pem"
        self.ca.write_text(authority.pem)
        own = authority.issue("CN=broker").write_pem(directory / "server.pem")
        key_set = directory / "keys.json"
        public = json.loads(ECAlgorithm.to_jwk(key.public_key()))
        key_set.write_text(json.dumps({"keys": [{**public, "kid": KEY_ID, "alg": "ES256"}]}))
        # `SaslKafka.settings` adds these to its own.
        self.kafka._settings = {
            **self._listeners(),
            **_logins(key_set),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(own),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "metrics.listener": "127.0.0.1:0",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{USER};User:ANONYMOUS",
            **(settings or {}),
        }
        # HOST:PORT of the metrics listener.
        self.metrics_address = ""

    @property
    def tls_address(self) -> tuple[str, int]:
        """The listener with TLS and without SASL."""
        return self.kafka.host, self.tls_port

    @property
    def sasl_address(self) -> tuple[str, int]:
        """The listener with SASL and without TLS."""
        return self.kafka.host, self.sasl_port

    @property
    def sasl_tls_address(self) -> tuple[str, int]:
        """The listener with SASL over TLS."""
        return self.kafka.host, self.sasl_tls_port

    def client_keys(self) -> dict[str, str]:
        """Keys of librdkafka for a login over TLS."""
        return {
            "bootstrap.servers": f"{self.kafka.host}:{self.sasl_tls_port}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.ca),
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }

    def tls_context(self) -> ssl.SSLContext:
        """The context of a client that trusts the broker."""
        return verifying_context(str(self.ca))

    def _listeners(self) -> dict[str, str]:
        host = self.kafka.host
        shown = {
            "PLAINTEXT": self.kafka.bootstrap,
            "TLS": f"{host}:{self.tls_port}",
            "LOGIN": f"{host}:{self.sasl_port}",
            "BOTH": f"{host}:{self.sasl_tls_port}",
        }
        advertised = ",".join(f"{name}://{address}" for name, address in shown.items())
        (controller,) = free_ports(1)
        return {
            "controller.quorum.voters": f"1@{host}:{controller}",
            "listeners": f"{advertised},CONTROLLER://{host}:{controller}",
            "advertised.listeners": advertised,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL,"
            "LOGIN:SASL_PLAINTEXT,BOTH:SASL_SSL",
        }

    def _read_after_ready(self, deadline: float) -> None:
        self.metrics_address = self._read_line(deadline).removeprefix(_METRICS)


def _logins(key_set: Path) -> dict[str, str]:
    settings = {"sasl.enabled.mechanisms": ",".join(MECHANISMS)}
    modules = {"PLAIN": PLAIN_JAAS, "OAUTHBEARER": f"{OAUTHBEARER_MODULE} required;"}
    for listener in ("login", "both"):
        for mechanism in MECHANISMS:
            place = f"listener.name.{listener}.{mechanism.lower()}"
            settings[f"{place}.sasl.jaas.config"] = modules.get(mechanism, SCRAM_JAAS)
    return settings | {
        "sasl.oauthbearer.jwks.endpoint.url": key_set.as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }
