"""What `barnabas doctor` says about the remote tier of a cluster, and about a broker's store."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cli.doctor.diagnosis import Diagnosis
from barnabas.cli.doctor.tiering import examine_store, report_retention, report_switch
from barnabas.runtime.disk import RealDisk
from barnabas.server.configs.configuration import read_configuration
from barnabas.storage.remote.opening import open_remote_storage

STORE = "file:///tier"
TIERED = {"flights": {"remote.storage.enable": "true"}}
CLUSTER = "cluster-of-the-test"


def switch(
    stores: dict[int, str | None], tiered: dict[str, dict[str, str]]
) -> list[tuple[str, str]]:
    diagnosis = Diagnosis()
    report_switch(stores, tiered, diagnosis)
    return [(each.verdict, each.what) for each in diagnosis.findings]


def test_a_tier_that_is_enabled_everywhere_and_used_is_fine() -> None:
    [(verdict, what)] = switch({1: STORE, 2: STORE}, TIERED)
    assert (verdict, what) == ("ok", "1 topic with a remote tier, enabled on all brokers")


def test_a_switch_without_a_topic_is_noted() -> None:
    [(verdict, what)] = switch({1: STORE}, {})
    assert verdict == "note"
    assert "no topic has a remote tier" in what


@pytest.mark.parametrize("stores", [{1: None, 2: None}, {1: STORE, 2: None}])
def test_topics_with_a_tier_on_brokers_without_it_are_wrong(stores: dict[int, str | None]) -> None:
    [(verdict, what)] = switch(stores, TIERED)
    assert verdict == "wrong"
    assert "1 topic with a remote tier (flights)" in what
    assert "is false on broker" in what


def test_a_switch_that_differs_between_brokers_is_wrong() -> None:
    [(verdict, what)] = switch({1: STORE, 2: None}, {})
    assert verdict == "wrong"
    assert "is true on broker 1 and false on broker 2" in what


def test_brokers_with_different_stores_are_wrong() -> None:
    found = switch({1: STORE, 2: "file:///other"}, TIERED)
    assert [verdict for verdict, _ in found] == ["ok", "wrong"]
    assert "file:///tier on broker 1; file:///other on broker 2" in found[1][1]


@pytest.mark.parametrize(
    ("values", "is_noted"),
    [
        ({}, True),
        ({"retention.ms": "1000", "local.retention.ms": "1000"}, True),
        ({"retention.ms": "1000", "local.retention.ms": "500"}, False),
        ({"retention.bytes": "1000", "local.retention.bytes": "10"}, False),
        ({"retention.bytes": "-1", "local.retention.bytes": "-2"}, True),
        ({"remote.log.copy.disable": "true"}, False),
    ],
)
def test_a_local_retention_that_saves_nothing_is_noted(
    values: dict[str, str], is_noted: bool
) -> None:
    diagnosis = Diagnosis()
    report_retention({"flights": values}, diagnosis)
    assert [each.verdict for each in diagnosis.findings] == ["note"] * is_noted


def store(directory: Path, url: str, cluster_id: str | None = CLUSTER) -> list[tuple[str, str]]:
    configuration = read_configuration(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": f"{directory}/data",
            "remote.log.storage.system.enable": "true",
            "barnabas.remote.storage": url,
        }
    )
    diagnosis = Diagnosis()
    examine_store(configuration, cluster_id, diagnosis)
    return [(each.verdict, each.what) for each in diagnosis.findings]


def make_store(directory: Path, cluster_id: str = CLUSTER) -> Path:
    tier = directory / "tier"
    open_remote_storage(f"file://{tier}", cluster_id, RealDisk()).close()
    return tier


def test_a_store_is_written_read_and_left_as_it_was(tmp_path: Path) -> None:
    tier = make_store(tmp_path)
    [(verdict, what)] = store(tmp_path, f"file://{tier}")
    assert (verdict, what) == (
        "ok",
        f"the store file://{tier} can be written, read and deleted from",
    )
    assert [path.name for path in (tier / CLUSTER).iterdir()] == ["store.json"]


def test_a_store_that_does_not_exist_yet_is_not_created(tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    [(verdict, what)] = store(tmp_path, f"file://{tier}")
    assert verdict == "note"
    assert f"has no store of cluster {CLUSTER}" in what
    assert not tier.exists()


def test_before_the_first_start_the_store_is_not_examined(tmp_path: Path) -> None:
    [(verdict, what)] = store(tmp_path, f"file://{tmp_path / 'tier'}", None)
    assert (verdict, "cluster id is unknown" in what) == ("note", True)


def test_a_store_of_another_cluster_is_wrong(tmp_path: Path) -> None:
    tier = make_store(tmp_path, "other")
    (tier / "other").rename(tier / CLUSTER)
    [(verdict, what)] = store(tmp_path, f"file://{tier}")
    assert verdict == "wrong"
    assert "cannot be opened" in what


def test_a_store_that_cannot_be_read_is_wrong(tmp_path: Path) -> None:
    tier = make_store(tmp_path)
    assert store(tmp_path, f"file://{tier}")[0][0] == "ok"
    # The mark of the store cannot be read.
    [mark] = (tier / CLUSTER).iterdir()
    mark.unlink()
    mark.mkdir()
    [(verdict, what)] = store(tmp_path, f"file://{tier}")
    assert (verdict, "the store" in what) == ("wrong", True)
