"""The settings of a registry's process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_TOPIC = "_schemas"
DEFAULT_GROUP = "schema-registry"
DEFAULT_PORT = 8081


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """What the command line and the properties give to a registry."""

    bootstrap: str
    # Configuration of the clients, without the bootstrap servers.
    client: Mapping[str, Any] = field(default_factory=dict)
    host: str = "127.0.0.1"
    # 0: any free port.
    port: int = DEFAULT_PORT
    # HOST:PORT that other processes of the registry use; empty for the address it listens on.
    advertised: str = ""
    topic: str = DEFAULT_TOPIC
    # -1: three replicas, or all brokers if there are fewer.
    replication_factor: int = -1
    group_id: str = DEFAULT_GROUP
    # Whether the process may lead; otherwise it forwards all changes.
    leader_eligibility: bool = True
    # Id of a process with which this one ends; None without one.
    exit_with: int | None = None
