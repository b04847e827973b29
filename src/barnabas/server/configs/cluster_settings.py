"""Settings of a node in its cluster: roles, voters and controller listeners (KIP-500, 595, 853).

The checks are those of KafkaConfig.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.primitives import uuid_from_string
from barnabas.server.configs.endpoint import parse_address
from barnabas.settings.definition import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.settings.definition import ParsedConfig

BROKER, CONTROLLER = "broker", "controller"
_VOTERS, _BOOTSTRAP = "controller.quorum.voters", "controller.quorum.bootstrap.servers"
_CLUSTER_ID = "cluster.id"
_STANDALONE = "cluster.standalone"


class ClusterSettings(msgspec.Struct, frozen=True):
    """Role of this node and addresses of the controllers, from the configuration."""

    node_id: int
    is_broker: bool
    is_controller: bool
    # Addresses (host, port) of the static voters by node id. Empty for dynamic voters, and for a
    # single-node cluster without configured voters.
    voters: Mapping[int, tuple[str, int]]
    # Addresses of controllers for finding the leader of a dynamic quorum.
    bootstrap_servers: tuple[tuple[str, int], ...]
    # Names in upper case. Nodes use the first listener to reach controllers.
    controller_listeners: tuple[str, ...]
    # Cluster id for formatting empty directories. None if it is not configured.
    cluster_id: str | None
    # Whether an empty directory is formatted as the first voter of a dynamic quorum.
    is_standalone: bool = False

    @property
    def roles(self) -> list[str]:
        """Values of `process.roles`."""
        roles = {BROKER: self.is_broker, CONTROLLER: self.is_controller}
        return [role for role, has_role in roles.items() if has_role]

    @property
    def may_found_cluster(self) -> bool:
        """Whether an empty directory may get a new cluster id if none is configured."""
        return self.is_alone or self.is_standalone

    @property
    def is_alone(self) -> bool:
        """Whether this process is a broker and the only controller, and needs no other node."""
        others = self.voters.keys() - {self.node_id}
        return self.is_broker and self.is_controller and not (others or self.bootstrap_servers)


def cluster_settings(config: ParsedConfig) -> ClusterSettings:
    """Read and check the cluster settings.

    Raises:
        ConfigError: invalid values, or values that contradict each other.
    """
    roles = config.strings("process.roles")
    settings = ClusterSettings(
        node_id=config.integer("node.id"),
        is_broker=BROKER in roles,
        is_controller=CONTROLLER in roles,
        voters=_voters(config),
        bootstrap_servers=_bootstrap_servers(config),
        controller_listeners=tuple(
            name.upper() for name in config.strings("controller.listener.names")
        ),
        cluster_id=_cluster_id(config),
        is_standalone=config.boolean(_STANDALONE),
    )
    _check_voters(config, settings)
    return settings


def _voters(config: ParsedConfig) -> dict[int, tuple[str, int]]:
    found: dict[int, tuple[str, int]] = {}
    for text in config.strings(_VOTERS):
        voter = parse_voter(text)
        if voter is None:
            raise ConfigError(_VOTERS, text, "ID@HOST:PORT,..., for example 1@10.0.0.1:9093")
        number, address = voter
        if number in found:
            raise ConfigError(_VOTERS, text, "each voter once")
        found[number] = address
    return found


def parse_voter(text: str) -> tuple[int, tuple[str, int]] | None:
    """Parse ID@HOST:PORT into node id and address (host, port); return None for invalid text."""
    number, at, address = text.partition("@")
    parsed = parse_address(address)
    if not (at and parsed and number.isascii() and number.isdigit()):
        return None
    return int(number), parsed


def _bootstrap_servers(config: ParsedConfig) -> tuple[tuple[str, int], ...]:
    found = []
    for text in config.strings(_BOOTSTRAP):
        parsed = parse_address(text)
        if parsed is None:
            raise ConfigError(_BOOTSTRAP, text, "HOST:PORT,...")
        found.append(parsed)
    return tuple(found)


def _cluster_id(config: ParsedConfig) -> str | None:
    text = config.optional_string(_CLUSTER_ID)
    if text is None:
        return None
    try:
        uuid_from_string(text)
    except ValueError as error:
        allowed = "a UUID of 22 characters, as `barnabas cluster` or kafka-storage random-uuid make"
        raise ConfigError(_CLUSTER_ID, text, allowed) from error
    return text


def _check_voters(config: ParsedConfig, settings: ClusterSettings) -> None:
    node_id, voters = settings.node_id, settings.voters
    if settings.is_standalone and (voters or not settings.is_controller):
        allowed = f"false, unless the node is a controller and {_VOTERS} is empty"
        raise ConfigError(_STANDALONE, "true", allowed)
    given = ",".join(config.strings(_VOTERS))
    if voters:
        if settings.bootstrap_servers:
            allowed = f"empty, or {_VOTERS} is: voters are either static or dynamic"
            raise ConfigError(_BOOTSTRAP, ",".join(config.strings(_BOOTSTRAP)), allowed)
        if settings.is_controller and node_id not in voters:
            allowed = f"{node_id}@HOST:PORT too (this node is a controller)"
            raise ConfigError(_VOTERS, given, allowed)
        if not settings.is_controller and node_id in voters:
            allowed = f"other nodes only (node {node_id} is no controller)"
            raise ConfigError(_VOTERS, given, allowed)
    elif not (settings.bootstrap_servers or settings.is_alone):
        allowed = f"ID@HOST:PORT,... of the cluster's controllers (or {_BOOTSTRAP})"
        raise ConfigError(_VOTERS, given, allowed)
