"""Barnabas and Apache Kafka with SASL listeners and an open listener, with the same settings.

Users of PLAIN are `admin`, `alice` and `bob`, each with the password NAME-secret. Tests create the
users of SCRAM over the open listener.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from barnabas.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE
from barnabas.testing.broker_process import ServerProcess
from barnabas.testing.free_ports import free_ports
from jvm.kafka_process import KafkaProcess

LISTENER = "SASL_PLAINTEXT"
# Clients of this listener must authenticate again within SESSION_MS. librdkafka and Java's client
# do so when 85 to 95 percent of the time have passed. On a busy machine they need the rest of it.
SHORT_LISTENER = "SHORT"
SESSION_MS = 5_000
PREFIX = f"listener.name.{LISTENER.lower()}"
USERS = ("admin", "alice", "bob")
PLAIN_USERS = " ".join(f'user_{name}="{name}-secret"' for name in USERS)
PLAIN_JAAS = f'{PLAIN_MODULE} required username="admin" password="admin-secret" {PLAIN_USERS};'
SCRAM_JAAS = f"{SCRAM_MODULE} required;"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def sasl_settings(mechanisms: tuple[str, ...] = MECHANISMS) -> dict[str, str]:
    """Return the settings of SASL, without the listeners."""
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
        f"{LISTENER}:{LISTENER},{SHORT_LISTENER}:{LISTENER}",
        "sasl.enabled.mechanisms": ",".join(mechanisms),
        f"listener.name.{SHORT_LISTENER.lower()}.connections.max.reauth.ms": str(SESSION_MS),
    }
    for name in (LISTENER, SHORT_LISTENER):
        for mechanism in mechanisms:
            jaas = PLAIN_JAAS if mechanism == "PLAIN" else SCRAM_JAAS
            settings[f"listener.name.{name.lower()}.{mechanism.lower()}.sasl.jaas.config"] = jaas
    return settings


def authorized_settings(directory: Path) -> dict[str, str]:
    """Return settings of a broker with an authorizer, tokens, and two log directories."""
    return {
        "delegation.token.secret.key": "a secret of the brokers",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
        "log.dirs": f"{directory}/one,{directory}/two",
        "transaction.state.log.num.partitions": "1",
        "offsets.topic.num.partitions": "1",
    }


class SaslKafka(KafkaProcess):
    """An Apache Kafka with the listeners of this module."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        machine: Sequence[str] | None = None,
    ) -> None:
        super().__init__(directory, settings, machine=machine)
        self.sasl_port, self.short_port = free_ports(2)

    @property
    def sasl_bootstrap(self) -> str:
        """HOST:PORT of the listener with SASL."""
        return f"{self.host}:{self.sasl_port}"

    @property
    def short_bootstrap(self) -> str:
        """HOST:PORT of the listener whose sessions end."""
        return f"{self.host}:{self.short_port}"

    def settings(self) -> dict[str, str]:
        usual = super().settings()
        sasl = f",{LISTENER}://{self.sasl_bootstrap},{SHORT_LISTENER}://{self.short_bootstrap}"
        return {
            **usual,
            "listeners": usual["listeners"] + sasl,
            "advertised.listeners": usual["advertised.listeners"] + sasl,
            **sasl_settings(),
            **self._settings,
        }


class SaslBarnabas(ServerProcess):
    """A Barnabas broker that is started with the same server.properties."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, "broker.log")
        # An Apache Kafka with the same file and directories. Only one of both may run.
        self.kafka = SaslKafka(directory, settings)
        self.bootstrap = self.kafka.bootstrap
        self.sasl_bootstrap = self.kafka.sasl_bootstrap
        self.short_bootstrap = self.kafka.short_bootstrap
        self.sasl_port = self.kafka.sasl_port
        self._properties = directory / "server.properties"

    def prepare(self) -> None:
        """Write server.properties."""
        lines = [f"{key}={value}" for key, value in self.kafka.settings().items()]
        self._properties.write_text("\n".join(lines) + "\n")

    def _command(self) -> list[str]:
        words = [sys.executable, "-m", "barnabas.cli.main", "start", str(self._properties)]
        return [*words, "--exit-with", str(os.getpid())]
