"""Decoded records as Arrow arrays, without one object per record.

The arrays are made from buffers. `pa.array` and `pa.scalar` would import pandas, if it is
installed, and that takes longer than a small read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from barnabas.record.reader import read_headers

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from numpy.typing import NDArray

    from barnabas.record.decoded_columns import DecodedRecords, Int64s


def fixed_width(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return an array without nulls of a type of fixed width, over the memory of `values`."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def repeated(text: str, count: int) -> pa.Array:
    """Return a string array that has `text` in each row."""
    data = text.encode()
    bounds = pa.py_buffer(np.array([0, len(data)], np.int32))
    one = pa.Array.from_buffers(pa.string(), 1, [None, bounds, pa.py_buffer(data)])
    return pa.repeat(one[0], count)


def keys_and_values(records: DecodedRecords) -> tuple[pa.Array, pa.Array]:
    """Return keys and values as two binary arrays.

    The buffer is interpreted as one binary array with the elements key, gap, value, gap per record.
    The offsets increase, as Arrow requires, and `take` copies only the requested elements.
    """
    count = len(records.offsets)
    bounds = np.empty((count, 4), np.int32)
    bounds[:, 0] = records.key_starts
    bounds[:, 1] = records.key_starts + np.maximum(records.key_sizes, 0)
    bounds[:, 2] = records.value_starts
    bounds[:, 3] = records.header_starts
    elements = pa.Array.from_buffers(
        pa.binary(), 4 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(records.buffer)]
    )
    indices = np.arange(0, 4 * count, 4, dtype=np.int32)
    return (
        _taken(elements, indices, records.key_sizes),
        _taken(elements, indices + 2, records.value_sizes),
    )


def _taken(elements: pa.Array, indices: NDArray[np.int32], sizes: Int64s) -> pa.Array:
    nulls = sizes < 0
    if nulls.all():
        return pa.nulls(len(indices), pa.binary())
    validity = None
    if nulls.any():
        validity = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    chosen = pa.Array.from_buffers(pa.int32(), len(indices), [validity, pa.py_buffer(indices)])
    return elements.take(chosen)


def header_rows(records: DecodedRecords, kind: pa.DataType) -> pa.Array:
    """Return a list of structs with key and value per record; null for no headers."""
    raw = np.frombuffer(records.buffer, np.uint8)
    # A header count of 0 is the byte 0. A record without that byte is found corrupt below.
    starts, ends = records.header_starts, records.ends
    has_some = raw[np.minimum(starts, len(raw) - 1)] != 0
    if not has_some.any() and (ends - starts == 1).all():
        return pa.nulls(len(starts), kind)
    buffer = records.buffer
    rows: Iterable[list[dict[str, object]] | None] = (
        [{"key": key, "value": value} for key, value in read_headers(buffer, start, end)] or None
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    )
    return pa.array(rows, kind, size=len(starts))
