"""The classes for each record type of a log (imported on first use)."""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, cast

from barnabas.protocol.record_table import RECORD_ROWS

if TYPE_CHECKING:
    from barnabas.protocol.schema import Record


def metadata_record_class(record_type: int) -> type[Record] | None:
    """Return the class of a record in `__cluster_metadata`; None if the type is unknown."""
    classes = _classes("metadata", record_type)
    return classes[0] if classes else None


def group_record_classes(record_type: int) -> tuple[type[Record], type[Record]] | None:
    """Return the key and value class of a record in `__consumer_offsets`; None if unknown.

    The record type is the 16-bit number before the key. The values of each type have their own
    versions.
    """
    return _key_and_value("group-coordinator", record_type)


def transaction_record_classes(record_type: int) -> tuple[type[Record], type[Record]] | None:
    """Return the classes of a record in `__transaction_state`, like `group_record_classes`."""
    return _key_and_value("transaction-coordinator", record_type)


def share_record_classes(record_type: int) -> tuple[type[Record], type[Record]] | None:
    """Return the classes of a record in `__share_group_state`, like `group_record_classes`."""
    return _key_and_value("share-coordinator", record_type)


def _key_and_value(family: str, record_type: int) -> tuple[type[Record], type[Record]] | None:
    classes = _classes(family, record_type)
    return (classes[0], classes[1]) if classes else None


@cache
def _classes(family: str, record_type: int) -> tuple[type[Record], ...]:
    row = RECORD_ROWS[family].get(record_type)
    if row is None:
        return ()
    module_name, names = row
    module = importlib.import_module(f"barnabas.protocol.records.{module_name}")
    return tuple(cast("type[Record]", getattr(module, name)) for name in names)
