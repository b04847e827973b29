"""A directory at a feature level that this node does not know is refused, by name and untouched."""

from __future__ import annotations

import pytest

from barnabas.raft.log.metadata_log import format_metadata_directory
from barnabas.runtime.rng import SeededRng
from barnabas.server.startup.features import (
    BOOTSTRAP_FEATURES,
    SUPPORTED_FEATURES,
    UnsupportedFeaturesError,
    check_features,
)
from barnabas.server.startup.log_directories import DirectoryPaths, open_data_directories
from barnabas.sim.disk import SimDisk
from barnabas.sim.world import SimWorld


def formatted(**features: int) -> SimDisk:
    disk = SimWorld(1).host("a").disk
    levels = {name.replace("_", "."): level for name, level in features.items()}
    directory = "/data/__cluster_metadata-0"
    format_metadata_directory(disk, directory, {**BOOTSTRAP_FEATURES, **levels}, 0)
    return disk


@pytest.mark.parametrize("name", SUPPORTED_FEATURES)
def test_every_level_from_the_lowest_to_the_highest_is_accepted(name: str) -> None:
    for level in SUPPORTED_FEATURES[name]:
        check_features(formatted(**{name: level}), "/data")


def test_features_of_kafkas_default_are_named_with_the_command_that_lowers_them() -> None:
    disk = formatted(streams_version=2, share_version=3)
    with pytest.raises(UnsupportedFeaturesError) as caught:
        check_features(disk, "/data")
    assert "share.version 3 (this node knows 0 to 2), streams.version 2" in str(caught.value)
    assert "downgrade --feature share.version=2 --feature streams.version=1`" in str(caught.value)


def test_the_error_advises_to_lower_or_raise_an_unsupported_metadata_version() -> None:
    for level, command in ((99, "downgrade"), (3, "upgrade")):
        low, high = SUPPORTED_FEATURES["metadata.version"]
        with pytest.raises(UnsupportedFeaturesError) as caught:
            check_features(formatted(metadata_version=level), "/data")
        said = str(caught.value)
        assert f"metadata.version {level} (this node knows {low} to {high})" in said
        wanted = high if command == "downgrade" else low
        assert f"{command} --feature metadata.version={wanted}`" in said


def test_a_refusal_leaves_no_lock_no_identity_and_no_other_directory() -> None:
    disk = formatted(share_version=3)
    before = disk.list("/data")
    with pytest.raises(UnsupportedFeaturesError):
        open_data_directories(disk, DirectoryPaths(["/data", "/more"]), 1, SeededRng(1))
    assert disk.list("/data") == before
    assert not disk.exists("/more")
