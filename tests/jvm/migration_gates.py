"""The gates between two steps of a migration: commands that must succeed before the next node.

They are the commands of docs/migration.md. `carried` returns all that must carry over unchanged.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import confluent_kafka

from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.facade import Client
from jvm.migrating_cluster import SLOW_CLIENT, STRANGER, MigratingCluster
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# A limit for a gate that never opens; a busy machine takes its time.
WITHIN_S = 600.0
COMMAND_S = 300.0
GATES = (
    ("migrate", "check"),
    ("partitions", "show", "--unwell", "--internal"),
)
_SET_BY_USER = ("dynamic topic", "dynamic broker default", "dynamic group")


def pass_gates(bootstrap: str, check_alive: Callable[[], None]) -> None:
    """Wait until each command of the gates succeeds.

    Args:
        bootstrap: the addresses of the cluster.
        check_alive: raises an error if a node has ended.
    """
    for words in GATES:
        _pass_gate(words, bootstrap, check_alive)


def _pass_gate(words: Sequence[str], bootstrap: str, check_alive: Callable[[], None]) -> None:
    seen: list[subprocess.CompletedProcess[str]] = []

    def is_open() -> bool:
        check_alive()
        seen.append(_run(words, bootstrap))
        return seen[-1].returncode == 0

    eventually(is_open, lambda: str(seen[-1]), WITHIN_S, pause_s=1.0)


def _run(words: Sequence[str], bootstrap: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "barnabas.cli.main", *words, "--bootstrap", bootstrap],
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )


def carried(client: Client, topics: Sequence[str]) -> dict[str, object]:
    """Return what an operator has configured, as a cluster describes it."""
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    resources.append(ConfigResource(ResourceType.BROKER, ""))
    configs = client.admin.describe_configs(resources)
    return {
        "features": client.admin.describe_versions().finalized_features,
        "access control entries": set(client.admin.describe_acls()),
        "users": client.admin.describe_scram_credentials(),
        "quotas": client.admin.describe_quotas({}),
        "configs": {
            str(resource): sorted(
                (each.name, each.value) for each in entries if each.source in _SET_BY_USER
            )
            for resource, entries in configs.items()
            if not isinstance(entries, Exception)
        },
    }


def check_rules(cluster: MigratingCluster, topic: str) -> None:
    """Check that ACLs refuse a user without rights, and that a quota delays a client."""
    refused = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.secure_bootstrap, **cluster.keys(STRANGER), "log_level": 0}
    )
    errors: list[int] = []
    refused.produce(topic, b"0", on_delivery=lambda error, _: error and errors.append(error.code()))
    left = refused.flush(WITHIN_S)
    assert (left, errors) == (0, [confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED])
    delays: list[float] = []
    slow = confluent_kafka.Producer(
        {
            "bootstrap.servers": cluster.secure_bootstrap,
            **cluster.keys(),
            "client.id": SLOW_CLIENT,
            "throttle_cb": lambda event: delays.append(event.throttle_time),
            "log_level": 0,
        }
    )

    def is_delayed() -> bool:
        slow.produce(topic, b"." * 20_000)
        slow.flush(WITHIN_S)
        return bool(delays)

    eventually(is_delayed, "no response has a throttle time", WITHIN_S, pause_s=0.5)
