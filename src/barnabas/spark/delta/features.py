"""Which features of a Delta table the sink supports; it refuses a table with any other one.

A feature is part of a table if its protocol names the feature (writer version 7), or if an older
writer version implies the feature and a property or a column uses it. The protocol allows only
writers that support all features of the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.spark.delta.columns import Column, all_columns, contains_type
from barnabas.spark.delta.errors import DeltaTableError

if TYPE_CHECKING:
    from collections.abc import Mapping

# Features whose presence in the protocol is harmless: `delta-rs` commits to such tables, and the
# sink obeys what the feature asks for where a property or a column uses it.
SUPPORTED = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "generatedColumns",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
        "variantType",
        "variantType-preview",
    }
)
_CURRENT_READER, _CURRENT_WRITER = 3, 7
# Writer version that implies identity columns; `delta-rs` does not write to such tables.
_IDENTITY_WRITER = 6
# Metadata of a column whose values the writer must compute, and the feature.
_COMPUTED = (
    ("delta.generationExpression", "generatedColumns"),
    ("delta.identity.", "identityColumns"),
    ("CURRENT_DEFAULT", "allowColumnDefaults"),
)
# Properties that ask for what the sink cannot do, and the feature.
_PROPERTIES = (
    ("delta.enableRowTracking", "rowTracking"),
    ("delta.enableInCommitTimestamps", "inCommitTimestamp"),
    ("delta.enableIcebergCompatV1", "icebergCompatV1"),
    ("delta.enableIcebergCompatV2", "icebergCompatV2"),
    ("delta.enableIcebergCompatV3", "icebergCompatV3"),
)


@dataclass(frozen=True, slots=True)
class TableState:
    """What decides how a table may be written."""

    address: str
    reader_version: int
    writer_version: int
    # Features that the protocol names.
    features: frozenset[str]
    # Properties of the table.
    properties: Mapping[str, str]
    columns: list[Column]


def check_features(state: TableState, *, removes_rows: bool) -> None:
    """Refuse a table with a feature that the sink does not support.

    Args:
        state: the table.
        removes_rows: whether the sink will replace, change or delete rows of the table.

    Raises:
        DeltaTableError: the table uses such a feature; names the feature and its columns.
    """
    used = [*_protocol_features(state), *_column_features(state), *_property_features(state)]
    if used:
        raise DeltaTableError(
            f"{state.address} uses features of Delta that barnabas_delta does not support:"
            f" {'; '.join(dict.fromkeys(used))}. Nothing was written. Drop these features from the"
            " table, or write to it with Spark and Delta's jar"
        )
    if removes_rows and state.properties.get("delta.appendOnly", "").lower() == "true":
        raise DeltaTableError(
            f"{state.address} is append-only (delta.appendOnly=true, feature appendOnly), so its"
            " rows cannot be replaced. Append to it, or set delta.appendOnly to false"
        )


def _protocol_features(state: TableState) -> list[str]:
    used = sorted(state.features - SUPPORTED)
    if state.writer_version == _IDENTITY_WRITER:
        used.append(f"identityColumns (implied by writer version {_IDENTITY_WRITER})")
    if state.writer_version > _CURRENT_WRITER or state.reader_version > _CURRENT_READER:
        used.append(
            f"reader version {state.reader_version} with writer version {state.writer_version}"
        )
    return used


def _column_features(state: TableState) -> list[str]:
    used = []
    for prefix, feature in _COMPUTED:
        paths = [
            path
            for path, column in all_columns(state.columns)
            if any(key.startswith(prefix) for key in column["metadata"])
        ]
        if paths:
            used.append(f"{feature} (of {', '.join(paths)})")
    variants = [each["name"] for each in state.columns if contains_type(each["type"], "variant")]
    if variants:
        used.append(f"variantType (of {', '.join(variants)})")
    return used


def _property_features(state: TableState) -> list[str]:
    used = []
    mode = state.properties.get("delta.columnMapping.mode", "none")
    if mode.lower() != "none":
        used.append(f"columnMapping (delta.columnMapping.mode={mode})")
    for name, feature in _PROPERTIES:
        if state.properties.get(name, "").lower() == "true":
            used.append(f"{feature} ({name}=true)")
    return used
