"""Directories that are formatted before a node's first start, and clusters that begin with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.primitives import uuid_to_string
from barnabas.raft.log.snapshot import BOOTSTRAP_SNAPSHOT, read_snapshot
from barnabas.raft.voter_set import VoterHistory, VoterSet
from barnabas.server.configs.configuration import read_configuration
from barnabas.server.startup.formatting import (
    FirstVoters,
    FormatDependencies,
    FormatError,
    Formatted,
    format_node,
    parse_initial_controllers,
)
from barnabas.storage.files.metadata_files import MetaProperties
from unit.server.simulated_cluster import CONTROLLER_PORT, SimulatedCluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.server.startup.formatting import InitialController

METADATA = "/data/__cluster_metadata-0"
DIRECTORIES = {node_id: bytes([7] * 15 + [node_id]) for node_id in (1, 2, 3)}
INITIAL = ",".join(
    f"{node_id}@node-{node_id}:{CONTROLLER_PORT}:{uuid_to_string(directory)}"
    for node_id, directory in DIRECTORIES.items()
)


class FormattedCluster(SimulatedCluster):
    """Dynamic voters; nothing starts before it was formatted."""

    def properties(self, node_id: int) -> dict[str, str]:
        properties = super().properties(node_id)
        known = ",".join(f"node-{each}:{CONTROLLER_PORT}" for each in self.roles)
        del properties["controller.quorum.voters"]
        properties["controller.quorum.bootstrap.servers"] = known
        return properties

    def format(
        self,
        node_id: int,
        voters: FirstVoters | Sequence[InitialController],
        *,
        skip_formatted: bool = False,
        **settings: str,
    ) -> list[Formatted]:
        host = self.world.host(f"node-{node_id}")
        given = {key.replace("_", "."): value for key, value in settings.items()}
        properties = {
            key: value for key, value in (self.properties(node_id) | given).items() if value
        }
        return format_node(
            read_configuration(properties),
            voters,
            FormatDependencies(host.disk, host.clock, host.rng),
            skip_formatted=skip_formatted,
        )

    def begins_with(self, node_id: int) -> tuple[int, VoterSet]:
        """kraft.version and voters of the checkpoint."""
        history = VoterHistory(VoterSet())
        disk = self.world.host(f"node-{node_id}").disk
        snapshot = read_snapshot(disk, METADATA, BOOTSTRAP_SNAPSHOT, history)
        assert next(record.name for record, _ in snapshot.records) == "metadata.version"
        return history.kraft_version, history.last

    def voters(self, node_id: int) -> list[int]:
        return [each.id for each in self.nodes[node_id].shared.quorum.status().voters]


def combined() -> FormattedCluster:
    return FormattedCluster(dict.fromkeys((1, 2, 3), "broker,controller"))


def test_nodes_formatted_with_the_same_controllers_make_one_quorum_at_once() -> None:
    cluster = combined()
    for node_id in cluster.roles:
        (done,) = cluster.format(node_id, parse_initial_controllers(INITIAL))
        assert done == Formatted("/data", uuid_to_string(DIRECTORIES[node_id]), is_new=True)
        level, voters = cluster.begins_with(node_id)
        assert level == 1
        assert {each.key.id: each.key.directory_id for each in voters} == DIRECTORIES
    cluster.start()
    assert all(cluster.voters(node_id) == [1, 2, 3] for node_id in cluster.roles)
    cluster.kill(cluster.active)
    cluster.until(lambda: cluster.active > 0)


def test_a_standalone_quorum_is_joined_by_one_without_initial_controllers() -> None:
    cluster = combined()
    cluster.settings["controller.quorum.auto.join.enable"] = "true"
    cluster.format(1, FirstVoters.STANDALONE)
    for node_id in (2, 3):
        cluster.format(node_id, FirstVoters.NONE)
        assert cluster.begins_with(node_id) == (1, VoterSet())
    (voter,) = cluster.begins_with(1)[1]
    assert (voter.key.id, voter.endpoints[0][0]) == (1, "CONTROLLER")
    cluster.start()
    cluster.until(lambda: all(cluster.voters(each) == [1, 2, 3] for each in cluster.roles))


def test_static_voters_write_no_voter_set_and_brokers_no_checkpoint() -> None:
    cluster = combined()
    static = {
        "controller_quorum_bootstrap_servers": "",
        "controller_quorum_voters": "1@node-1:9093,2@node-2:9093",
    }
    cluster.format(1, FirstVoters.AS_CONFIGURED, **static)
    assert cluster.begins_with(1) == (0, VoterSet())
    broker = {"process_roles": "broker", "listeners": "PLAINTEXT://node-3:9092"}
    cluster.format(3, FirstVoters.AS_CONFIGURED, **broker)
    disk = cluster.world.host("node-3").disk
    assert disk.list("/data") == ["meta.properties"]


def test_each_directory_has_its_own_id_and_the_metadata_directory_that_of_the_voter() -> None:
    cluster = combined()
    done = cluster.format(
        2, parse_initial_controllers(INITIAL), log_dirs="/one,/two", metadata_log_dir="/meta"
    )
    assert [each.path for each in done] == ["/meta", "/one", "/two"]
    assert done[0].directory_id == uuid_to_string(DIRECTORIES[2])
    assert len({each.directory_id for each in done}) == 3


def test_a_formatted_directory_is_not_changed() -> None:
    cluster = combined()
    first = cluster.format(1, FirstVoters.STANDALONE)
    with pytest.raises(FormatError, match="--ignore-formatted"):
        cluster.format(1, FirstVoters.STANDALONE)
    again = cluster.format(1, FirstVoters.STANDALONE, skip_formatted=True, log_dirs="/data,/new")
    assert [(each.path, each.is_new) for each in again] == [("/data", False), ("/new", True)]
    assert again[0].directory_id == first[0].directory_id


def test_an_interrupted_formatting_is_repeated() -> None:
    cluster = combined()
    cluster.format(1, FirstVoters.STANDALONE)
    disk = cluster.world.host("node-1").disk
    disk.remove("/data/meta.properties")
    cluster.format(1, parse_initial_controllers(INITIAL))
    assert cluster.begins_with(1)[1].ids == (1, 2, 3)
    meta = MetaProperties.read(disk, "/data")
    assert meta is not None
    assert meta.directory_id == DIRECTORIES[1]


@pytest.mark.parametrize(
    ("node_id", "voters", "settings", "words"),
    [
        (1, FirstVoters.AS_CONFIGURED, {}, "choose the first voters"),
        (1, FirstVoters.STANDALONE, {"cluster_id": ""}, "--cluster-id UUID"),
        (
            1,
            FirstVoters.STANDALONE,
            {
                "controller_quorum_voters": "1@node-1:9093",
                "controller_quorum_bootstrap_servers": "",
            },
            "lists static voters",
        ),
        (
            1,
            FirstVoters.STANDALONE,
            {"process_roles": "broker", "listeners": "PLAINTEXT://node-1:9092"},
            "needs a controller",
        ),
        (4, parse_initial_controllers(INITIAL), {}, "--initial-controllers lacks it"),
    ],
)
def test_contradictory_arguments_are_refused_and_nothing_is_formatted(
    node_id: int,
    voters: FirstVoters | Sequence[InitialController],
    settings: dict[str, str],
    words: str,
) -> None:
    cluster = combined()
    cluster.roles[4] = "broker,controller"
    with pytest.raises(FormatError, match=words):
        cluster.format(node_id, voters, **settings)
    assert not cluster.world.host(f"node-{node_id}").disk.exists("/data")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1@host",
        "1@host:9093",
        "x@host:9093:AAAAAAAAAAAAAAAAAAAAZg",
        "1@host:9093:not-an-id",
        "1@host:9093:AAAAAAAAAAAAAAAAAAAAAA",
        "1@a:9093:AAAAAAAAAAAAAAAAAAAAZg,1@b:9093:AAAAAAAAAAAAAAAAAAAAaA",
        "1@a:9093:AAAAAAAAAAAAAAAAAAAAZg,2@b:9093:AAAAAAAAAAAAAAAAAAAAZg",
    ],
)
def test_malformed_initial_controllers_are_refused(text: str) -> None:
    with pytest.raises(FormatError):
        parse_initial_controllers(text)
