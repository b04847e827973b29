"""The processes of a node on this machine, for `barnabas start`, `format` and `doctor`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnabas.protocol.primitives import uuid_to_string
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.port_reservation import PortReservations
from barnabas.runtime.rng import SystemRng
from barnabas.runtime.usable_cores import usable_cores
from barnabas.server.configs.config import node_directories
from barnabas.server.configs.configuration import read_configuration
from barnabas.server.configs.node_keys import BROKERS_KEY
from barnabas.server.configs.node_layout import broker_count, node_layout
from barnabas.server.startup.node_folders import lock_node_directories, read_node_directories

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from barnabas.server.configs.node_layout import NodeProcessPlan
    from barnabas.settings.definition import ParsedConfig


def plan_node(
    properties: Mapping[str, str], config: ParsedConfig, reserve_port: Callable[[str], int]
) -> Sequence[NodeProcessPlan]:
    """Return the processes of a node by its keys and its directories, the controller first.

    Args:
        properties: the operator's keys.
        config: the values of the same keys.
        reserve_port: returns a free port of a host, which stays free for the node.

    Raises:
        ConfigError: an invalid configuration.
        InconsistentDirectoryError: the directories belong to several clusters.
        OSError: a directory cannot be read.
    """
    found = read_node_directories(RealDisk(), node_directories(config))
    count = broker_count(
        config.string(BROKERS_KEY), usable_cores(), config.integer("node.id"), found
    )
    return node_layout(
        properties, count, found, lambda: uuid_to_string(SystemRng().uuid()), reserve_port
    )


@contextmanager
def reserved_node(properties: Mapping[str, str]) -> Iterator[Sequence[NodeProcessPlan]]:
    """Give the processes of a node. Its directories are locked and its ports reserved meanwhile.

    Args:
        properties: the operator's keys.

    Raises:
        ConfigError: an invalid configuration.
        StorageError: the directories belong to several clusters, or another node uses one.
        OSError: a directory or an address cannot be used.
    """
    config = read_configuration(properties, warns=False).parsed
    locks = lock_node_directories(RealDisk(), node_directories(config))
    ports = PortReservations()
    try:
        yield plan_node(properties, config, ports.reserve)
    finally:
        ports.close()
        for lock in locks:
            lock.release()
