"""Finds the class that codes a record type of a given log (loaded when asked for)."""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, cast

from barnabas.protocol.record_table import RECORD_ROWS

if TYPE_CHECKING:
    from barnabas.protocol.schema import Record


def metadata_record_class(record_type: int) -> type[Record] | None:
    """The class of a record of `__cluster_metadata`; None if it is newer than we are."""
    classes = _classes("metadata", record_type)
    return classes[0] if classes else None


def group_record_classes(record_type: int) -> tuple[type[Record], type[Record]] | None:
    """Key and value class of a record of `__consumer_offsets`; None if it is newer than we are.

    The record type is the version that stands before the key. Values of one type have versions
    of their own.
    """
    return _key_and_value("group-coordinator", record_type)


def transaction_record_classes(record_type: int) -> tuple[type[Record], type[Record]] | None:
    """As `group_record_classes`, for `__transaction_state`."""
    return _key_and_value("transaction-coordinator", record_type)


def share_record_classes(record_type: int) -> tuple[type[Record], type[Record]] | None:
    """As `group_record_classes`, for `__share_group_state`."""
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
