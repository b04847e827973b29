"""Keys and folders of a node of several processes (`barnabas start --brokers`)."""

from __future__ import annotations

import re

import msgspec

from barnabas.settings.definition import ConfigKey, ConfigType
from barnabas.settings.key import at_least, satisfying

BROKERS_KEY = "barnabas.node.brokers"
STOP_TIMEOUT_KEY = "barnabas.node.stop.timeout.ms"
# The supervisor gives this key to its processes: the ids of the node's brokers. It is no key of
# operators.
MEMBERS_KEY = "barnabas.node.members"
# A key of one process: the number of the broker or the word controller, and the key.
OVERRIDE = re.compile(r"barnabas\.node\.(?:broker\.(\d{1,9})|(controller))\.(.+)")
# The ids of a node's brokers are the node's id and two digits.
BROKERS_MAX = 99


def _is_count(value: object) -> bool:
    if not isinstance(value, str):
        return False
    is_number = value.isascii() and value.isdecimal() and len(value) < 4
    return value in ("", "auto") or (is_number and 1 <= int(value) <= BROKERS_MAX)


SUPERVISOR_KEYS = [
    ConfigKey(
        BROKERS_KEY,
        ConfigType.STRING,
        "",
        "The number of broker processes of this node, or auto for one on each usable core. Empty:"
        " one process. barnabas.node.broker.NUMBER.KEY sets a key of one of them (from 1 on),"
        " barnabas.node.controller.KEY one of their controller.",
        satisfying(f"auto, or 1 to {BROKERS_MAX}", _is_count),
    ),
    ConfigKey(
        STOP_TIMEOUT_KEY,
        ConfigType.LONG,
        120_000,
        "How long a node of several processes waits for the clean stop of its brokers, and then of"
        " its controller, before it kills those that still run.",
        at_least(1),
    ),
]


class NodeDirectories(msgspec.Struct, frozen=True):
    """Identities that were found in the data directories of a node before its start."""

    # Whether a directory itself is formatted, not only folders in it: it was that of one process.
    is_single: bool = False
    # Ids of the brokers whose folders have partitions.
    broker_ids: frozenset[int] = frozenset()
    # Cluster id of the formatted directories and folders; None if nothing is formatted.
    cluster_id: str | None = None


def folder_name(kind: str, node_id: int) -> str:
    """Return the name of a process's folder in a data directory of the node.

    It has no hyphen, so it is never taken for the directory of a partition.
    """
    return f"{kind}.{node_id}"
