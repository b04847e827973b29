"""A table with any feature of Delta's protocol takes rows, or is refused without a new file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from barnabas.spark.delta.options import DeltaOptions
from barnabas.spark.delta.plan import SUPPORTED
from barnabas.spark.errors import DeltaTableError
from spark.delta_tables import (
    Writer,
    column,
    create_table,
    deletion_vector,
    listing,
    stored_rows,
    write,
)

FIRST = pa.table({"v": pa.array([1, 2], pa.int64())})
MORE = pa.table({"v": pa.array([3], pa.int64())})
# Features that concern readers too.
READER_FEATURES = (
    "catalogManaged",
    "catalogOwned-preview",
    "columnMapping",
    "deletionVectors",
    "geospatial",
    "redirectReaderWriter-preview",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "variantShredding-preview",
    "variantType",
    "variantType-preview",
)
WRITER_FEATURES = (
    "allowColumnDefaults",
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "checkpointProtection",
    "clustering",
    "collations-preview",
    "coordinatedCommits-preview",
    "domainMetadata",
    "generatedColumns",
    "icebergCompatV1",
    "icebergCompatV2",
    "icebergCompatV3",
    "icebergWriterCompatV1",
    "identityColumns",
    "inCommitTimestamp",
    "inCommitTimestamp-preview",
    "invariants",
    "materializePartitionColumns",
    "redirectWriterOnly-preview",
    "rowTracking",
    "a feature of the future",
)
FEATURES = READER_FEATURES + WRITER_FEATURES
# How `delta-rs` names a table that it cannot even open.
CALLED = {"catalogManaged": "catalog-managed", "catalogOwned-preview": "catalog-managed"}


def protocol_with(*features: str) -> dict[str, Any]:
    readers = [each for each in features if each in READER_FEATURES]
    found: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 7}
    if readers:
        found = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": readers}
    return {**found, "writerFeatures": list(features)}


def values(options: DeltaOptions) -> list[int]:
    return [each["v"] for each in stored_rows(options)]


def refused(options: DeltaOptions, message: str, *, overwrite: bool = False) -> None:
    """Check that the table is refused by this message, and that no file is written."""
    before = listing(options)
    with pytest.raises(DeltaTableError, match=message):
        write(options, MORE, overwrite=overwrite)
    assert listing(options) == before


@pytest.mark.parametrize("feature", FEATURES)
def test_a_table_with_a_feature_takes_rows_or_is_refused(feature: str, tmp_path: Path) -> None:
    for overwrite in (False, True):
        options = create_table(
            tmp_path / str(overwrite), [column("v")], FIRST, protocol=protocol_with(feature)
        )
        if feature not in SUPPORTED:
            refused(options, CALLED.get(feature, feature), overwrite=overwrite)
            continue
        write(options, MORE, overwrite=overwrite)
        assert values(options) == ([3] if overwrite else [1, 2, 3])


def test_every_supported_feature_is_tried() -> None:
    assert set(FEATURES) >= SUPPORTED


@pytest.mark.parametrize("version", range(1, 8))
def test_a_table_of_an_older_writer_version_takes_rows_unless_it_implies_identity_columns(
    version: int, tmp_path: Path
) -> None:
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": version}
    if version == 7:
        protocol["writerFeatures"] = []
    options = create_table(tmp_path / "table", [column("v")], FIRST, protocol=protocol)
    if version == 6:
        refused(options, "identityColumns")
    else:
        write(options, MORE)
        assert values(options) == [1, 2, 3]


COMPUTED = [
    ({"delta.generationExpression": "v * 2"}, "generatedColumns .of w.", 4),
    ({"delta.identity.start": 1, "delta.identity.step": 1}, "identityColumns .of w.", 4),
    ({"CURRENT_DEFAULT": "0"}, "allowColumnDefaults .of w.", 2),
]


@pytest.mark.parametrize(("metadata", "message", "version"), COMPUTED)
def test_columns_that_a_writer_must_compute_are_named(
    metadata: dict[str, Any], message: str, version: int, tmp_path: Path
) -> None:
    protocol = {"minReaderVersion": 1, "minWriterVersion": version}
    options = create_table(
        tmp_path / "table", [column("v"), column("w", **metadata)], FIRST, protocol=protocol
    )
    refused(options, message)


@pytest.mark.parametrize("mode", ["name", "id"])
def test_a_table_with_mapped_columns_is_refused(mode: str, tmp_path: Path) -> None:
    mapping = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "v"}
    options = create_table(
        tmp_path / "table",
        [column("v", **mapping)],
        FIRST,
        protocol={"minReaderVersion": 2, "minWriterVersion": 5},
        properties={"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "1"},
    )
    refused(options, f"columnMapping .delta.columnMapping.mode={mode}")


@pytest.mark.parametrize("kind", ["variant", {"type": "array", "elementType": "variant"}])
def test_a_table_with_a_variant_is_refused(kind: Any, tmp_path: Path) -> None:
    if isinstance(kind, dict):
        kind = {**kind, "containsNull": True}
    options = create_table(
        tmp_path / "table",
        [column("v"), column("w", kind)],
        FIRST,
        protocol=protocol_with("variantType"),
    )
    refused(options, r"variantType \(of w\)")


def test_an_append_only_table_takes_rows_and_keeps_them(tmp_path: Path) -> None:
    options = create_table(
        tmp_path / "table", [column("v")], FIRST, properties={"delta.appendOnly": "true"}
    )
    write(options, MORE)
    refused(options, "append-only", overwrite=True)
    assert values(options) == [1, 2, 3]


def test_the_change_data_feed_has_appended_and_replaced_rows(tmp_path: Path) -> None:
    options = create_table(
        tmp_path / "table",
        [column("v")],
        FIRST,
        protocol={"minReaderVersion": 1, "minWriterVersion": 4},
        properties={"delta.enableChangeDataFeed": "true"},
    )
    write(options, MORE)
    write(options, pa.table({"v": [4]}), overwrite=True)
    feed = pa.table(DeltaTable(options.address).load_cdf(starting_version=1).read_all())
    found = sorted(
        (each["_commit_version"], each["_change_type"], each["v"]) for each in feed.to_pylist()
    )
    assert found == [
        (1, "insert", 3),
        (2, "delete", 1),
        (2, "delete", 2),
        (2, "delete", 3),
        (2, "insert", 4),
    ]


def test_rows_behind_a_deletion_vector_stay_deleted(tmp_path: Path) -> None:
    vector = deletion_vector(3, 4, 7, 11)
    options = create_table(
        tmp_path / "table",
        [column("v")],
        pa.table({"v": pa.array(range(30), pa.int64())}),
        protocol=protocol_with("deletionVectors"),
        deletion_vector=vector,
    )
    kept = sorted(set(range(30)) - {3, 4, 7, 11})
    write(options, pa.table({"v": [100]}))
    assert sorted(values(options)) == [*kept, 100]
    write(options, MORE, overwrite=True)
    assert values(options) == [3]
    # Readers find the file that was removed by its path and its vector.
    lines = (tmp_path / "table" / "_delta_log" / f"{2:020}.json").read_text().splitlines()
    removed = [json.loads(each)["remove"] for each in lines if "remove" in json.loads(each)]
    assert [each.get("deletionVector") for each in removed if each["path"] == "first.parquet"] == [
        vector
    ]


def test_a_feature_that_appears_during_a_batch_is_refused_at_the_commit(tmp_path: Path) -> None:
    options = create_table(tmp_path / "table", [column("v")], FIRST)
    writer = Writer(options, MORE.schema)
    [batch] = MORE.to_batches()
    files = writer.files(batch)
    DeltaTable(options.address).alter.add_constraint({"small": "v < 3"})
    with pytest.raises(DeltaTableError, match="were changed while the batch was written"):
        writer.commit(files)
    assert values(options) == [1, 2]
