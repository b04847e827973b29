"""The processes of a node on this machine, for `barnabas start`, `format` and `doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.primitives import uuid_to_string
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.rng import SystemRng
from barnabas.runtime.usable_cores import usable_cores
from barnabas.server.configs.configuration import read_configuration
from barnabas.server.configs.node_keys import BROKERS_KEY, SUPERVISOR_KEYS
from barnabas.server.configs.node_layout import broker_count, node_layout
from barnabas.server.startup.node_folders import (
    lock_node_directories,
    node_directories,
    read_node_directories,
)
from barnabas.settings.definition import ConfigDefinition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from barnabas.runtime.disk import FileLock
    from barnabas.server.configs.node_layout import NodeProcessPlan
    from barnabas.settings.definition import ParsedConfig

SUPERVISOR_DEFINITION = ConfigDefinition(SUPERVISOR_KEYS)


def plan_node(
    properties: Mapping[str, str], reserve_port: Callable[[str], int], locks: list[FileLock]
) -> Sequence[NodeProcessPlan]:
    """Lock the directories of a node, and return its processes, the controller first.

    Args:
        properties: the operator's keys.
        reserve_port: returns a free port of a host, which stays free for the node.
        locks: gets the locks of the directories, which the caller releases.

    Raises:
        ConfigError: an invalid configuration.
        StorageError: the directories belong to several clusters, or another node uses one.
        OSError: a directory cannot be used.
    """
    own = {key.name: properties[key.name] for key in SUPERVISOR_KEYS if key.name in properties}
    text = SUPERVISOR_DEFINITION.parse(own).string(BROKERS_KEY)
    shared = {name: value for name, value in properties.items() if name not in own}
    parsed = read_configuration(shared, warns=False).parsed
    locks += lock_node_directories(RealDisk(), node_directories(parsed))
    return planned_processes(properties, text, parsed, reserve_port)


def planned_processes(
    properties: Mapping[str, str],
    brokers: str,
    parsed: ParsedConfig,
    reserve_port: Callable[[str], int],
) -> Sequence[NodeProcessPlan]:
    """Return the processes of a node, the controller first, from what its directories have.

    Args:
        properties: the operator's keys.
        brokers: the value of `barnabas.node.brokers`.
        parsed: the configuration of one process with these keys.
        reserve_port: returns a free port of a host, which stays free for the node.

    Raises:
        ConfigError: an invalid configuration.
        InconsistentDirectoryError: the directories belong to several clusters.
        OSError: a directory cannot be read.
    """
    found = read_node_directories(RealDisk(), node_directories(parsed))
    count = broker_count(brokers, usable_cores(), parsed.integer("node.id"), found)
    return node_layout(
        properties, count, found, lambda: uuid_to_string(SystemRng().uuid()), reserve_port
    )
