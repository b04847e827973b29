"""What delta-rs does wrong with decimals when it writes files, and how the sink avoids it.

delta-rs converts the statistics of decimals to binary floating-point numbers. Those of more than 15
digits are rounded, so readers would leave out files that have the rows they look for. It also
writes negative decimals as values of partitions that no reader accepts, such as `-1.-50`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from barnabas.spark.delta.columns import Column, all_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deltalake import WriterProperties

# Decimal digits that a binary floating-point number keeps.
_EXACT_DIGITS = 15


def is_rounded(column: Column) -> bool:
    """Return whether delta-rs rounds the statistics of a column."""
    digits = _digits(column)
    return digits is not None and digits > _EXACT_DIGITS


def decimal_columns(columns: Sequence[Column], names: Iterable[str]) -> list[str]:
    """Return those of the names whose columns are decimals."""
    decimals = {each["name"] for each in columns if _digits(each) is not None}
    return [each for each in names if each in decimals]


def file_properties(
    columns: Sequence[Column], compression: Literal["SNAPPY", "ZSTD"]
) -> WriterProperties | None:
    """Return how delta-rs writes files without rounded statistics; None if it rounds none.

    Args:
        columns: the columns of the table.
        compression: of the files; `deltalake` has no default of its own for given properties.
    """
    from deltalake import ColumnProperties, WriterProperties

    if not any(is_rounded(each) for _, each in all_columns(columns)):
        return None
    # delta-rs cannot name a field of a struct, so only simple columns get statistics.
    kept = [each for each in columns if isinstance(each["type"], str) and not is_rounded(each)]
    return WriterProperties(
        compression=compression,
        default_column_properties=ColumnProperties(statistics_enabled="NONE"),
        column_properties={
            each["name"]: ColumnProperties(statistics_enabled="CHUNK") for each in kept
        },
    )


def _digits(column: Column) -> int | None:
    """Return the number of digits of a decimal column."""
    kind = column["type"]
    found = re.match(r"decimal\((\d+)", kind) if isinstance(kind, str) else None
    return None if found is None else int(found[1])
