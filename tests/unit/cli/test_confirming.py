"""Commands that delete something ask on a terminal, and say what is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from barnabas.cli.admin import acls, brokers as broker_commands, configs as config_commands
from barnabas.cli.common import terminal
from barnabas.cli.group import group
from barnabas.client.admin.acls import Acl
from barnabas.client.admin.cluster import ClusterDescription
from barnabas.client.admin.configs import ConfigEntry
from barnabas.client.connections.metadata_cache import NodeInfo, PartitionInfo, TopicInfo
from barnabas.protocol.resources import AclOperation, AclPermission, AclResourceType, PatternType
from unit.cli.leaf_commands import LEAVES

DELETING = {"abort", "delete", "delete-offsets", "purge", "remove", "terminate", "unregister"}
DENY = Acl(
    AclResourceType.TOPIC,
    "secret",
    "User:guest",
    AclOperation.READ,
    AclPermission.DENY,
    "*",
    PatternType.LITERAL,
)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command with a client of the test, on a terminal or without one."""

    def run(client: object, *words: str, has_terminal: bool, answer: str = "n\n") -> Result:
        @contextmanager
        def connected(*_words: Any, **_options: Any) -> Iterator[object]:
            yield client

        for module in (acls, broker_commands, config_commands):
            monkeypatch.setattr(module, "connected", connected)
        monkeypatch.setattr(terminal, "has_terminal", lambda: has_terminal)
        return CliRunner().invoke(group, list(words), input=answer)

    return run


@pytest.mark.parametrize(
    ("path", "command"),
    [(path, each) for path, each in LEAVES if path.split()[-1] in DELETING],
)
def test_every_command_that_deletes_can_be_confirmed(path: str, command: click.Command) -> None:
    options = {option for parameter in command.params for option in parameter.opts}
    assert "--yes" in options, path


# Access control entries


def acl_client(deleted: list[object]) -> object:
    def delete_acls(filters: list[object]) -> dict[object, Any]:
        deleted.extend(filters)
        return dict.fromkeys(filters, SimpleNamespace(acls=[DENY], errors=[]))

    admin = SimpleNamespace(describe_acls=lambda _filter: [DENY], delete_acls=delete_acls)
    return SimpleNamespace(admin=admin)


@pytest.mark.parametrize(("answer", "removed"), [("n\n", False), ("y\n", True)])
def test_an_entry_that_denies_is_shown_before_it_is_removed(
    run: Callable[..., Result], answer: str, removed: bool
) -> None:
    deleted: list[object] = []
    words = ("acls", "remove", "User:guest")
    done = run(acl_client(deleted), *words, has_terminal=True, answer=answer)
    assert "Remove this entry? 1 of them deny: what they deny may be allowed then." in done.output
    assert done.output.index("secret") < done.output.index("Remove this entry?")
    assert bool(deleted) is removed


def test_scripts_remove_entries_without_a_question(run: Callable[..., Result]) -> None:
    deleted: list[object] = []
    done = run(acl_client(deleted), "acls", "remove", "User:guest", has_terminal=False)
    assert (done.exit_code, len(deleted)) == (0, 1)


# Brokers


def cluster_client(unregistered: list[int], *replicas: tuple[int, ...]) -> Any:
    partitions = {
        number: PartitionInfo(number, 1, 3, each, each) for number, each in enumerate(replicas)
    }
    node = NodeInfo(1, "h", 9092)
    return SimpleNamespace(
        admin=SimpleNamespace(unregister_broker=unregistered.append),
        describe_cluster=lambda: ClusterDescription("c", 1, (node,), (NodeInfo(3, "h", 9093),)),
        describe_topics=lambda: {"t": TopicInfo("t", bytes(16), False, partitions)},
    )


def test_a_broker_with_replicas_is_unregistered_only_after_a_question(
    run: Callable[..., Result],
) -> None:
    unregistered: list[int] = []
    client = cluster_client(unregistered, (1, 3), (1,))
    done = run(client, "brokers", "unregister", "3", has_terminal=True)
    assert "It has 1 replica" in done.output
    done = run(client, "brokers", "unregister", "3", has_terminal=False)
    assert (done.exit_code, unregistered) == (1, [])
    assert "broker 3 has 1 replica" in done.stderr
    assert run(client, "brokers", "unregister", "3", "--yes", has_terminal=False).exit_code == 0
    assert unregistered == [3]


def test_a_broker_with_the_only_replica_in_sync_is_unregistered_only_by_force(
    run: Callable[..., Result],
) -> None:
    unregistered: list[int] = []
    client = cluster_client(unregistered, (1, 3), (3,), (1,))
    done = run(client, "brokers", "unregister", "3", "--yes", has_terminal=False)
    assert (done.exit_code, unregistered) == (1, [])
    assert "broker 3 has the only in-sync replica of 1 partition: t-1" in done.stderr
    assert "barnabas rebalance --exclude-broker 3" in done.stderr
    forced = run(client, "brokers", "unregister", "3", "--yes", "--force", has_terminal=False)
    assert (forced.exit_code, unregistered) == (0, [3])


def test_a_broker_without_replicas_is_unregistered_by_scripts(run: Callable[..., Result]) -> None:
    unregistered: list[int] = []
    client = cluster_client(unregistered, (1,))
    assert run(client, "brokers", "unregister", "3", has_terminal=False).exit_code == 0
    assert unregistered == [3]


# Configs of brokers


@pytest.mark.parametrize("name", ["1", "default"])
def test_a_misspelled_key_of_a_broker_is_refused(run: Callable[..., Result], name: str) -> None:
    changed: list[object] = []
    client = cluster_client([])
    entry = ConfigEntry("listeners", "PLAINTEXT://:9092", "static broker", False, True, False)
    client.admin.describe_configs = lambda resources: {each: [entry] for each in resources}
    client.admin.alter_configs = lambda _resource, changes, **_: changed.append(changes)
    words = ("configs", "set", "broker", name)
    done = run(client, *words, "listenrs=abc", has_terminal=False)
    assert (done.exit_code, changed) == (1, [])
    assert "brokers have no key listenrs; did you mean listeners? (--force" in done.stderr
    accepted = {"listenrs=abc": ("--force",), "listener.name.x.ssl.keystore.location=f": ()}
    for pair, options in accepted.items():
        assert run(client, *words, pair, *options, has_terminal=False).exit_code == 0
    assert len(changed) == 2
